"""Texts: how they fall into tokens, and as what a model gets them."""

from typing import Annotated, Literal

from pydantic import Field

from tasks.section import Section, kind_if_none


class Tokens(Section):
    """How texts fall into tokens, of which a vocabulary is counted; case, punctuation and whitespace are ASCII's."""

    standardise: Literal["lower_and_strip_punctuation", "lower", "none"] = "lower_and_strip_punctuation"
    """What is done to a text before: A-Z made small, punctuation taken out; other letters stay as they are."""
    split: Literal["whitespace", "character"] = "whitespace"
    """What a token is: a word between whitespace, or a single character."""
    max_vocabulary: int = Field(20_000, ge=1)
    """Tokens of each text feature that are kept with their counts, the most frequent of the training split."""


class BytesText(Section):
    """A text is its UTF-8 bytes: needs no vocabulary, fits any language."""

    kind: Literal["bytes"] = "bytes"
    length: int = Field(256, ge=1)
    """Bytes of a text that the model gets: it is cut there, or padded with 0."""


class WordsText(Section):
    """A text is the numbers of its tokens, as data.text found and counted them."""

    kind: Literal["words"] = "words"
    max_words: int = Field(256, ge=1)
    """Tokens of a text that the model gets: it is cut there, or padded with 0."""
    vocabulary_size: int | None = Field(None, ge=1)
    """Tokens with a number of their own, the most frequent, since each costs an embedding; default: all that were
    kept."""


UNCOUNTED = (
    "feed.text.kind=words: needs the vocabulary of the training split; have it counted with "
    "data.text.split=whitespace, or set feed.text.kind=bytes"
)

FeedText = Annotated[BytesText | WordsText, Field(discriminator="kind"), kind_if_none("bytes")]
