"""The page and the model card: all of a report, as it is; names of the data mean nothing to a browser."""

import base64
import io
import re
from collections.abc import Iterator
from html.parser import HTMLParser

import pytest
from markdown_it import MarkdownIt
from PIL import Image

from tasks.evaluate.facts import number
from tasks.evaluate.model_card import model_card
from tasks.evaluate.page import render_page
from tests.evaluate import hand_made

VOID = {"img", "link", "meta"}


class Page(HTMLParser):
    """Elements and text of a page whose tags must close as they opened."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def attributes(self, *names: str) -> Iterator[str]:
        """Yields the values of attributes of all elements."""
        for _, attributes in self.elements:
            yield from (value for name in names if (value := attributes.get(name)) is not None)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


@pytest.fixture(scope="module", params=hand_made.CLASSES)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def html(kind):
    return render_page(hand_made.facts(kind), hand_made.files(kind), hand_made.INPUTS)


def test_names_and_texts_of_the_data_are_shown_and_mean_nothing_to_a_browser(kind, html):
    page = Page(html)
    assert not {tag for tag, _ in page.elements} & {"script", "em", "i><script"}
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
    shown = ["<em>red</em>", "<b>Not bold</b> & a sentence", "<i>red</i>", "2 hidden files were left out: .a, <b>"]
    for text in (*shown, *hand_made.CLASSES[kind][:2]):
        assert " ".join(text.split()) in page.text


def test_nothing_is_fetched_and_each_image_says_what_it_is(html):
    page = Page(html)
    links = list(page.attributes("src", "href", "srcset", "action", "data"))
    assert links
    assert not [link for link in links if not link.startswith(("data:", "#"))]
    assert not re.search(r"url\(|@import", html)
    targets = set(page.attributes("id"))
    assert {link[1:] for link in links if link.startswith("#")} == targets
    images = [attributes for tag, attributes in page.elements if tag == "img"]
    assert len(images) >= 4
    for image in images:
        assert image["alt"]
        head, _, data = image["src"].partition(",")
        with Image.open(io.BytesIO(base64.b64decode(data, validate=True))) as found:
            assert head == f"data:image/{found.format.lower()};base64"
            assert (str(found.width), str(found.height)) == (image["width"], image["height"])


def test_large_images_are_made_smaller_and_tiny_ones_show_their_pixels(html):
    photo, pixels = (
        next(attributes for _, attributes in Page(html).elements if attributes.get("alt") == f"{name} of example {id}")
        for name, id in (("photo", 3), ("pixels", 17))
    )
    assert (photo["width"], photo["height"], photo.get("class")) == ("480", "373", None)
    assert (pixels["width"], pixels["height"], pixels["class"]) == ("8", "8", "pixels")


def test_figures_come_with_their_intervals_and_small_slices_are_marked(kind, html):
    facts, page = hand_made.facts(kind), Page(html)
    for name, value, interval in facts.figures:
        assert name in page.text
        assert value in page.text
        assert interval in page.text
    assert page.texts.count("small") == 4
    assert "4 of 500 test examples had, to the byte, the inputs of a training example" in page.text
    assert "14,547 examples/s on 2 replicas" in page.text


def test_of_many_classes_those_of_the_lowest_f1_are_shown():
    page = Page(render_page(hand_made.facts("multi_label"), hand_made.files("multi_label"), {}))
    assert "The 50 of the lowest F1; 10 more are in report.json." in page.text
    assert "label 59" in page.texts
    assert "label 9" not in page.texts


def test_same_report_gives_the_same_page(kind, html):
    assert render_page(hand_made.facts(kind), hand_made.files(kind), hand_made.INPUTS) == html


def test_the_card_states_data_figures_limits_and_how_to_load(kind):
    card = model_card(hand_made.facts(kind), "7")
    for line in (
        "- data digest: 98c2419fc95cc779",
        "- splits: fraction: train 4,000, validation 500, test 500",
        "- It was trained and evaluated on CPUs; no GPU has run it.",
        f'model = mlflow.pyfunc.load_model("models:/hand_made_{kind}/7")',
        f"millstream serve hand_made_{kind}/7",
    ):
        assert f"\n{line}\n" in card
    for name, value, interval in hand_made.facts(kind).figures:
        assert f"| {name} | {value} | {interval} |" in card


def test_names_of_the_data_are_text_in_the_card():
    html = MarkdownIt().render(model_card(hand_made.facts("multiclass")))
    assert "<script" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;, tar &amp; feather | &quot;quoted&quot;" in html


def test_a_report_without_intervals_and_a_run_trained_further_are_told_as_such():
    facts = hand_made.facts("binary", trained=None)
    bare = facts.report.model_copy(update={"intervals": {}, "slices": (), "worst": (), "num_leaked": None})
    page = Page(render_page(hand_made.facts("binary", trained=None, report=bare), {}, {}))
    assert "how far chance moves the figures is not said" in page.text
    assert not {"Slices", "Worst examples", "Speed", "Plots", "leakage"} & set(page.texts)


def test_numbers_have_the_digits_that_are_worth_reading():
    values = {0: "0.0000", 0.98333: "0.9833", -12.345: "-12.35", 1234.5: "1,234", 0.0000321: "3.2e-05"}
    assert {value: number(value) for value in values} == values
