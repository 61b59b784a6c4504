"""An HTTP server on this machine that does what is asked of it, also wrong things."""

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.serving import serving

ETAG = '"one"'


class Server(ThreadingHTTPServer):
    """Serves `data` under any path; its fields say what it does wrong, and `requests` what it was asked."""

    daemon_threads = True

    def __init__(self, data: bytes) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.data, self.etag, self.last_modified = data, ETAG, ""
        self.cuts: list[int] = []  # after how many bytes each of the next answers is cut
        self.statuses: list[int] = []  # of the next answers, before all is well
        self.ranges, self.lie, self.chunked, self.close_delimited = True, 0, False, False
        self.headers: dict[str, str] = {}
        self.pause_seconds = 0.0
        self.silent = False  # it takes a request and says nothing until it ends
        self.ended = threading.Event()
        self.requests: list[dict[str, str]] = []

    def handle_error(self, *args: object) -> None:
        """Says nothing of clients that went away: the tests make them."""

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{path}"

    def asked(self) -> list[str]:
        """The ranges that were asked for, '' for all."""
        return [headers.get("Range", "") for headers in self.requests]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        server, self.close_connection = self.server, True
        server.requests.append({"path": self.path, **self.headers})
        if server.silent:
            server.ended.wait()
            return
        if server.statuses and (status := server.statuses.pop(0)) != 200:
            self.send_response(status)
            if status == 302:
                self.send_header("Location", server.headers["Location"])
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        start = self._start()
        if start >= len(server.data) > 0:
            self.send_response(416)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        body = server.data[start:]
        self.send_response(206 if start else 200)
        if start:
            total = len(server.data) + server.lie
            self.send_header("Content-Range", f"bytes {start}-{total - 1}/{total}")
        if server.chunked:
            self.send_header("Transfer-Encoding", "chunked")
        elif not server.close_delimited:
            self.send_header("Content-Length", str(len(body) + server.lie))
        if server.etag:
            self.send_header("ETag", server.etag)
        if server.last_modified:
            self.send_header("Last-Modified", server.last_modified)
        for name, value in server.headers.items():
            self.send_header(name, value)
        self.end_headers()
        self._send(body, server.cuts.pop(0) if server.cuts else None)

    def _start(self) -> int:
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        same = self.headers.get("If-Range") in (None, self.server.etag, self.server.last_modified)
        return int(asked[1]) if asked and same and self.server.ranges else 0

    def _send(self, body: bytes, cut: int | None) -> None:
        for place in range(0, len(body[:cut]), 65536):
            piece = body[:cut][place : place + 65536]
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece) if self.server.chunked else piece)
            threading.Event().wait(self.server.pause_seconds)
        if self.server.chunked and cut is None:
            self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def running(data: bytes) -> Iterator[Server]:
    """Yields a server of `data` that answers until the end of the block."""
    with serving(Server(data)) as server:
        yield server
        server.ended.set()
