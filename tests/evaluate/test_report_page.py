"""What a person sees who opens a report, on a desk and on a phone, by day and by night.

`REPORT_SCREENSHOTS=tasks/evaluate pytest -m prove tests/evaluate/test_report_page.py` renews the pictures of
tasks/evaluate/README.md.
"""

import os
from pathlib import Path

import pytest

from tasks.evaluate.page import render_page
from tasks.evaluate.report import PAGE
from tests.browser import keep_picture, open_browser
from tests.evaluate import hand_made

pytestmark = pytest.mark.prove
HEIGHTS = {1280: 1500, 400: 1150}
"""Of the pictures, by the width of the window, in pixels."""
SMALLEST_TEXT, LEAST_CONTRAST = 12, 4.5  # pixels; WCAG 2.2, 1.4.3

IMAGES = "[...document.images].map(image => image.complete && image.naturalWidth)"
OPEN_ALL = "document.querySelectorAll('details').forEach(each => each.open = true)"
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
# Every element with a text of its own: what it says, the size, and the contrast with the nearest ground below it.
TEXTS = """() => {
  const numbers = color => color.match(/[\\d.]+/g).map(Number)
  const luminance = color => numbers(color).slice(0, 3)
    .map(part => part / 255).map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
    .reduce((sum, part, place) => sum + part * [0.2126, 0.7152, 0.0722][place], 0)
  const ground = element => {
    const color = getComputedStyle(element).backgroundColor
    return numbers(color)[3] === 0 && element.parentElement ? ground(element.parentElement) : color
  }
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
  const found = []
  while (walker.nextNode()) {
    const text = walker.currentNode.textContent.trim(), element = walker.currentNode.parentElement
    if (!text) continue
    const style = getComputedStyle(element)
    const [dark, light] = [luminance(style.color), luminance(ground(element))].sort((a, b) => a - b)
    found.push([text.slice(0, 40), parseFloat(style.fontSize), (light + 0.05) / (dark + 0.05)])
  }
  return found
}"""


@pytest.fixture(scope="module")
def pages(report, tmp_path_factory):
    """A real report and one of each kind that has all that a report may hold, by name."""
    folder = tmp_path_factory.mktemp("pages")
    found = {"real": report.directory / PAGE}
    for kind in hand_made.CLASSES:
        found[kind] = folder / f"{kind}.html"
        found[kind].write_text(render_page(hand_made.facts(kind), hand_made.files(kind), hand_made.INPUTS))
    return found


@pytest.fixture(scope="module")
def browser():
    with open_browser() as browser:
        yield browser


@pytest.mark.parametrize("width", HEIGHTS)
def test_a_report_is_whole_and_readable_and_asks_the_network_for_nothing(pages, browser, width, tmp_path):
    for name, file in pages.items():
        window = browser.new_page(viewport={"width": width, "height": 900})
        said, asked = [], []
        window.on("console", lambda message, said=said: said.append(message.text))
        window.on("pageerror", lambda error, said=said: said.append(str(error)))
        window.on("request", lambda request, asked=asked: asked.append(request.url))
        window.goto(file.as_uri())
        if name == "real":
            box = {"x": 0, "y": 0, "width": width, "height": HEIGHTS[width]}
            folder = Path(os.environ.get("REPORT_SCREENSHOTS") or tmp_path)
            keep_picture(window.screenshot(full_page=True, clip=box), folder / f"report-{width}.png")
        images = window.evaluate(IMAGES)
        assert len(images) >= 2, name
        assert all(images), name
        window.evaluate(OPEN_ALL)
        assert window.evaluate(OVERFLOW) == 0, name
        for scheme in ("light", "dark"):
            window.emulate_media(color_scheme=scheme)
            texts = window.evaluate(TEXTS)
            assert len(texts) > 50, name
            hard_to_read = [text for text in texts if text[1] < SMALLEST_TEXT or text[2] < LEAST_CONTRAST]
            assert hard_to_read == [], f"{name}, {scheme}"
        assert [url for url in asked if not url.startswith("data:")] == [file.as_uri()], name
        assert said == [], name
        window.close()
