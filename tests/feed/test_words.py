"""Words: the graph finds the tokens that prepare counted, to the byte, and gives each its number."""

import itertools

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.feed.words import find_words, split_tokens
from tasks.prepare.vocabulary import find_tokens
from tasks.texts import Tokens

ALL = [
    Tokens(standardise=standardise, split=split)
    for standardise, split in itertools.product(
        ("lower_and_strip_punctuation", "lower", "none"), ("whitespace", "character")
    )
]
IDS = [f"{tokens.standardise}-{tokens.split}" for tokens in ALL]
# Where decoders and libraries part: overlong, surrogate, too large, cut off, marks, other spaces, other cases.
PIECES = [
    *(bytes([byte]) for byte in range(256)),
    *("ẞ", "İ", "ǅ", "é", "名", "🙂", "\u00a0", "\u2003", "\u3000", "\u0085", "\u2028", "\ufeff", "\ufffd", "\uffff"),
    *(b"\xc0\x80", b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"\xf8\x88\x80\x80\x80"),
]
TEXTS = st.one_of(
    st.binary(max_size=20),
    st.text(max_size=20).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.lists(st.sampled_from(PIECES), max_size=8).map(
        lambda pieces: b"".join(piece.encode() if isinstance(piece, str) else piece for piece in pieces)
    ),
)


@pytest.mark.parametrize("tokens", ALL, ids=IDS)
@settings(max_examples=60, deadline=None)
@given(texts=st.lists(TEXTS, min_size=1, max_size=20))
def test_tokens_of_any_bytes_are_those_that_prepare_counts(tokens, texts):
    assert split_tokens(tf.constant(texts), tokens).to_list() == [find_tokens(text, tokens) for text in texts]


@pytest.mark.parametrize("tokens", [ALL[0], ALL[1]], ids=IDS[:2])
def test_tokens_of_every_character_are_those_that_prepare_counts(tokens):
    characters = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    texts = ["a".join(characters[start : start + 256]).encode() for start in range(0, len(characters), 256)]
    assert split_tokens(tf.constant(texts), tokens).to_list() == [find_tokens(text, tokens) for text in texts]


def test_every_order_of_bytes_that_is_no_utf8_is_none_in_the_graph_too():
    edges = [0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC1, 0xC2, 0xDF, 0xE0, 0xED, 0xEF, 0xF0, 0xF4, 0xF5]
    every = [range(256)] * 2
    texts = [bytes(text) for text in (*itertools.product(*every), *itertools.product(edges, repeat=4))]
    assert split_tokens(tf.constant(texts), ALL[-1]).to_list() == [find_tokens(text, ALL[-1]) for text in texts]


def words_of(texts, vocabulary, *, max_words=4, tokens=Tokens()):  # noqa: B008
    found = find_words(tf.constant(texts, tf.string), tokens, vocabulary, max_words=max_words)
    assert (found.dtype, found.shape[1]) == (tf.int32, max_words)
    return found.numpy().tolist()


def test_a_word_is_its_place_an_unknown_one_is_1_and_padding_0():
    texts = [b"The film", b"the, FILM. was... good!", b"", b"...", b"\xff the film", b"the the the the film"]
    assert words_of(texts, ["the", "film", "good"]) == [
        [2, 3, 0, 0],
        [2, 3, 1, 4],
        [0, 0, 0, 0],
        [0, 0, 0, 0],
        [0, 0, 0, 0],  # not UTF-8
        [2, 2, 2, 2],
    ]


def test_characters_have_places_too():
    tokens = Tokens(standardise="none", split="character")
    assert words_of(["aö a".encode()], [" ", "ö", "a"], max_words=5, tokens=tokens) == [[4, 3, 2, 4, 0]]


def test_without_a_vocabulary_every_word_is_unknown():
    assert words_of([b"one two", b""], []) == [[1, 1, 0, 0], [0, 0, 0, 0]]


def test_no_texts_or_none_with_a_word_give_nothing():
    assert words_of([], ["the"]) == []
    assert words_of([b"", b" "], ["the"]) == [[0] * 4, [0] * 4]


def test_each_of_many_words_has_a_place_of_its_own():
    vocabulary = [f"w{number}" for number in range(100_000)]
    found = words_of([" ".join(vocabulary).encode()], vocabulary, max_words=100_001)
    assert found == [[*range(2, 100_002), 0]]
