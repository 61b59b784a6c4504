"""The browser of proofs: Debian's chromium, which Playwright steers."""

import io
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

# Without the network chromium keeps trying to reach its maker.
QUIET = ("--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run")


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Yields a browser without a window."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu", "--disable-quic", *QUIET]
        )
        yield browser
        browser.close()


def keep_picture(screenshot: bytes, file: Path) -> None:
    """Writes a screenshot in a third of its size, for the repository."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with Image.open(io.BytesIO(screenshot)) as picture:
        picture.convert("RGB").quantize(128).save(file, optimize=True)
