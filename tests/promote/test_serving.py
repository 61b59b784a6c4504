"""Serving: a real server answers raw inputs as the evaluation did, refuses what is wrong, and goes without a trace."""

import base64
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, NamedTuple

import httpx
import numpy as np
import psutil
import pytest

from tasks.evaluate.predictions import read_predictions
from tasks.evaluate.report import PREDICTIONS
from tests.every_kind import LABEL_MAP, make_example
from tests.promote.conftest import Registered

pytestmark = [pytest.mark.prove, pytest.mark.timeout(300)]
MILLSTREAM = Path(sys.executable).with_name("millstream")
IDS = range(160, 171)  # the test split


class Server(NamedTuple):
    """`millstream serve` with the log that it writes."""

    process: subprocess.Popen[str]
    url: str

    def post(self, body: Any, **more: Any) -> httpx.Response:
        content = {"content": body} if isinstance(body, bytes) else {"json": body}
        return httpx.post(f"{self.url}/invocations", **content, **more, timeout=60, trust_env=False)


@pytest.fixture(scope="module")
def server(every_kind: Registered, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    temporary, log = tmp_path_factory.mktemp("temporary"), tmp_path_factory.mktemp("server") / "log"
    with open(log, "w") as file:
        process = _start(every_kind, "serve", "every_kind/1", "--port", "0", stderr=file, TMPDIR=str(temporary))
    try:
        address = r"serve: models:/every_kind/1 at (http://127\.0\.0\.1:[0-9]+)/invocations, takes pixels, vector, "
        while not (found := re.search(address, log.read_text())):
            assert process.poll() is None, log.read_text()
            time.sleep(0.1)
        with httpx.Client(transport=httpx.HTTPTransport(retries=8), trust_env=False) as client:
            assert client.get(f"{found[1]}/health").status_code == 200
        yield Server(process, found[1])

        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert [child for child in children if child.is_running()] == []
        assert list(temporary.iterdir()) == []
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture(scope="module")
def due(every_kind: Registered) -> dict[int, np.ndarray]:
    found = read_predictions(every_kind.report.directory / PREDICTIONS)
    return dict(zip(found.ids.tolist(), found.predictions, strict=True))


def test_raw_inputs_are_answered_with_probabilities_and_labels_as_in_the_report(
    server: Server, every_kind: Registered, due: dict[int, np.ndarray]
) -> None:
    answer = server.post({"inputs": _inputs(every_kind, IDS)})
    assert answer.status_code == 200
    found = answer.json()["predictions"]
    wanted = np.array([due[id] for id in IDS])
    np.testing.assert_allclose(found["probabilities"], wanted, rtol=0, atol=1e-5)
    assert found["class"] == wanted.argmax(axis=1).tolist()
    assert found["label"] == [LABEL_MAP[place] for place in wanted.argmax(axis=1)]


def test_200_requests_at_once_are_all_answered_right(
    server: Server, every_kind: Registered, due: dict[int, np.ndarray]
) -> None:
    bodies = {id: {"inputs": _inputs(every_kind, [id])} for id in IDS}
    ids = [IDS[number % len(IDS)] for number in range(200)]
    with ThreadPoolExecutor(200) as pool:
        answers = list(pool.map(lambda id: server.post(bodies[id]), ids))
    assert {answer.status_code for answer in answers} == {200}
    found = [answer.json()["predictions"]["probabilities"][0] for answer in answers]
    np.testing.assert_allclose(found, [due[id] for id in ids], rtol=0, atol=1e-5)


def test_what_is_wrong_gets_4xx_with_a_sentence(server: Server, every_kind: Registered) -> None:
    whole = _inputs(every_kind, [160])
    as_json = {"headers": {"Content-Type": "application/json"}}
    no_image = base64.b64encode(b"no image").decode()
    for body, more, status, words in (
        (b"{", as_json, 400, "valid JSON"),
        (b"\xff", as_json, 400, "invalid start byte"),
        ({}, {}, 400, "exactly one of the input fields"),
        ([], {}, 400, "Received a list"),
        ({"inputs": {name: value for name, value in whole.items() if name != "photo"}}, {}, 400, r"missing.*photo"),
        ({"inputs": whole | {"vector": [[1, 2]]}}, {}, 400, r"Shape of input \(1, 2\)"),
        ({"inputs": whole | {"pixels": [[[[300], [0]], [[0], [0]]]]}}, {}, 400, "300 out of bounds"),
        ({"inputs": whole | {"weight_g": ["heavy"]}}, {}, 400, "heavy"),
        ({"inputs": whole | {"photo": [no_image]}}, {}, 400, "does not take it: Unknown image file format"),
        ({"inputs": whole | {"photo": ["#"]}}, {}, 400, "does not take it: "),
        (b"x", {"headers": {"Content-Type": "image/png"}}, 415, "content types"),
        (b"x", {}, 415, "Content-Type is missing"),
    ):
        answer = server.post(body, **more)
        assert answer.status_code == status, (body, answer.text)
        assert answer.json().keys() == {"error"}
        assert re.search(words, answer.json()["error"]), answer.text
        assert len(answer.json()["error"]) <= 400
        assert "Traceback" not in answer.text
    assert server.post({"inputs": whole}).status_code == 200


def test_a_port_that_is_taken_and_a_name_that_is_none_are_errors_of_usage(
    server: Server, every_kind: Registered
) -> None:
    port = server.url.rpartition(":")[2]
    for command, code, words in (
        (("serve", "every_kind", "--port", port), 2, f"error: port {port} of 127.0.0.1 cannot be had"),
        (("predict", "another", "a.json"), 2, "error: another: .* has no such model; it has every_kind"),
        (("predict", "every_kind", "none.json"), 1, r"error: none\.json: cannot be read \(No such file"),
    ):
        process = _start(every_kind, *command)
        _, errors = process.communicate()
        assert (process.returncode, bool(re.search(words, errors))) == (code, True), errors
        assert "Traceback" not in errors


def _start(
    every_kind: Registered, *arguments: str, stderr: IO[str] | int = subprocess.PIPE, **environment: str
) -> subprocess.Popen[str]:
    inherited = {name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"}
    return subprocess.Popen(
        [MILLSTREAM, *arguments],
        env={**inherited, "MILLSTREAM_WORKSPACE": str(every_kind.run.workspace), **environment},
        cwd=tempfile.gettempdir(),
        stderr=stderr,
        text=True,
        start_new_session=True,
    )


def _inputs(every_kind: Registered, ids: Any) -> dict[str, list[Any]]:
    """Returns examples as JSON has them, by argument."""
    examples = [make_example(id) for id in ids]
    found: dict[str, list[Any]] = {}
    for name, input in every_kind.exported.inputs.items():
        values = [example[input.feature] for example in examples]
        if input.kind == "image":
            found[name] = [base64.b64encode(value).decode() for value in values]
        else:
            found[name] = [
                value.decode() if isinstance(value, bytes) else np.asarray(value).tolist() for value in values
            ]
    return found
