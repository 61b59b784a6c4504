"""The vocabulary of texts: exact counts of the training split alone, whatever the memory and the threads."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tasks.config import Config, build_config
from tasks.download.download import download
from tasks.errors import ConfigError, DataError
from tasks.prepare import vocabulary
from tasks.prepare.inspect import inspect_source
from tasks.prepare.manifest import FeatureStatistics, ShardManifest
from tasks.prepare.prepare import prepare
from tasks.prepare.vocabulary import WordCounts, find_tokens
from tasks.texts import Tokens

WORDS = Tokens()
CHARACTERS = Tokens(standardise="none", split="character")


def _counted(tokens: Tokens, *texts: str) -> FeatureStatistics:
    counts = WordCounts(tokens)
    for text in texts:
        counts.add(text.encode())
    return counts.result(num_missing=0)


@pytest.mark.parametrize(
    ("standardise", "expected"),
    [
        ("lower_and_strip_punctuation", ["dont", "panic", "Öl", "¿qué"]),
        ("lower", ["don't", "panic!", "-", "Öl,", "¿qué?"]),
        ("none", ["Don't", "PANIC!", "-", "Öl,", "¿Qué?"]),
    ],
)
def test_words_are_what_stands_between_whitespace_and_only_ascii_has_case(
    standardise: str, expected: list[str]
) -> None:
    tokens = Tokens.model_validate({"standardise": standardise})
    text = " Don't\tPANIC! -\r\n\v\fÖl,  ¿Qué? ".encode()
    if standardise != "none":
        text = text.replace("Qué".encode(), "qué".encode())
    assert [token.decode() for token in find_tokens(text, tokens)] == expected


def test_a_character_is_a_code_point_and_whitespace_one_too() -> None:
    assert [token.decode() for token in find_tokens("Aé \n🙂".encode(), CHARACTERS)] == ["A", "é", " ", "\n", "🙂"]


@pytest.mark.parametrize("text", [b"", b" \n", b"...", b"caf\xe9 latte", b"\xed\xa0\x80", b"\xc0\x80"])
def test_what_is_empty_or_not_utf8_has_no_words(text: bytes) -> None:
    assert find_tokens(text, WORDS) == []


def test_the_most_frequent_come_first_equal_ones_by_their_text_and_the_rest_is_counted() -> None:
    found = _counted(Tokens(max_vocabulary=4), "b a ö z", "A, c! b ö", "")
    assert found.vocabulary == (("a", 2), ("b", 2), ("ö", 2), ("c", 1))
    assert (found.num_left_out, found.num_tokens) == (1, 8)


def test_texts_without_a_word_have_an_empty_vocabulary() -> None:
    assert _counted(WORDS, "", "?") == FeatureStatistics(vocabulary=(), num_left_out=0, num_tokens=0)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(st.text("abcdefö \n", max_size=12)), most=st.integers(1, 5))
@pytest.mark.parametrize("limit", ["MAX_DIFFERENT", "MAX_BYTES"])
def test_counts_are_exact_however_little_of_them_fits_into_memory(
    monkeypatch: pytest.MonkeyPatch, limit: str, texts: list[str], most: int
) -> None:
    monkeypatch.setattr(vocabulary, limit, 2)
    expected = Counter(word for text in texts for word in text.split())
    found = _counted(Tokens(max_vocabulary=most), *texts)
    in_order = sorted(expected.items(), key=lambda pair: (-pair[1], pair[0]))
    assert found.vocabulary == tuple(in_order[:most])
    assert found.num_left_out == len(in_order[most:])
    assert found.num_tokens == expected.total()


def test_a_full_disk_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary, "MAX_DIFFERENT", 1)
    counts = WordCounts(WORDS)
    counts.add(b"one two")
    assert counts._database is not None
    counts._database.execute("PRAGMA max_page_count = 2")
    with pytest.raises(DataError, match=r"^data\.text: the tokens cannot be counted \(database or disk is full\)"):
        counts.add(" ".join(f"word{number}" for number in range(10_000)).encode())


def _config(folder: Path, **data: object) -> Config:
    """Returns the config of 300 rows whose text tells their number; every seventh has none."""
    rows = "".join(f"{'' if row % 7 == 0 else f'Row {row} and again {row}!'},{row % 2}\n" for row in range(300))
    (folder / "a.csv").write_text("t,y\n" + rows)
    source = {"kind": "table", "path": str(folder / "a.csv"), "target": "y", "text": ["t"], "missing": "keep"}
    return build_config({"name": "a", "data": {"source": source, "text": {}} | data})


def _manifest(config: Config, workspace: Path) -> ShardManifest:
    return prepare(config.name, config.data, download(config.data, workspace), workspace).manifest()


def _rows_of(manifest: ShardManifest) -> set[str]:
    [(_, found)] = [(name, found) for name, found in manifest.statistics.items() if found.num_tokens is not None]
    return {word for word, _ in found.vocabulary or () if word.isdigit()}


def test_only_the_training_split_is_counted_and_the_same_by_any_number_of_threads(tmp_path: Path) -> None:
    one = _manifest(_config(tmp_path, num_workers=1), tmp_path / "one")
    assert one == _manifest(_config(tmp_path, num_workers=4), tmp_path / "four")
    found = one.statistics["t"]
    counts = dict(found.vocabulary or ())
    num_train = one.splits["train"].num_examples
    with_text = num_train - found.num_missing
    assert counts["row"] == counts["and"] == counts["again"] == with_text < num_train
    assert len(_rows_of(one)) == with_text, "no row of another split is known"
    assert {count for word, count in counts.items() if word.isdigit()} == {2}
    assert [word for word, _ in (found.vocabulary or ())[:3]] == ["again", "and", "row"]
    assert (found.num_left_out, found.num_tokens) == (0, 5 * with_text)
    assert one.tokens == WORDS


def test_what_is_left_out_is_said(tmp_path: Path) -> None:
    manifest = _manifest(_config(tmp_path, text={"max_vocabulary": 3}), tmp_path / "workspace")
    with_text = manifest.splits["train"].num_examples - manifest.statistics["t"].num_missing
    assert manifest.statistics["t"].num_left_out == with_text
    assert (
        f"t: has {with_text + 3} different tokens, of which the 3 most frequent are kept; all others, 40.0% of train, "
        "are one to a model" in manifest.notes
    )


def test_nothing_is_counted_unless_it_is_asked_for(tmp_path: Path) -> None:
    manifest = _manifest(_config(tmp_path, text=None), tmp_path / "workspace")
    assert "t" not in manifest.statistics
    assert manifest.tokens is None


def test_inspecting_counts_the_words_of_all_examples(tmp_path: Path) -> None:
    config = _config(tmp_path)
    found = inspect_source(config.data, download(config.data, tmp_path / "workspace")).statistics["t"]
    assert found.vocabulary is not None
    assert found.vocabulary[0] == ("again", 300 - 43)
    assert found.num_missing == 43


def test_words_of_a_source_without_texts_are_refused(tmp_path: Path) -> None:
    config = _config(tmp_path)
    source = config.data.source.model_dump() | {"text": []}
    config = build_config({"name": "a", "data": {"source": source, "text": {}}})
    with pytest.raises(ConfigError, match=r"^data\.text: the source has no text whose tokens could be counted"):
        _manifest(config, tmp_path / "workspace")
