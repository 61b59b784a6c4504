"""Words: a text as the places of its tokens in the vocabulary, in the graph."""

import re
from collections.abc import Sequence

import tensorflow as tf

from tasks.feed.places import find_places
from tasks.prepare.vocabulary import PUNCTUATION
from tasks.texts import Tokens

PADDING, UNKNOWN = 0, 1
NUM_RESERVED = 2  # numbers that stand for no token of the vocabulary

# All of UTF-8, which leaves surrogates out: RE2 matches nothing else with it, at a quarter of unicode_transcode's time.
UTF8 = r"\x{0}-\x{d7ff}\x{e000}-\x{10ffff}"


def find_words(texts: tf.Tensor, tokens: Tokens, vocabulary: Sequence[str], *, max_words: int) -> tf.Tensor:
    """Returns [b, max_words] int32 of `texts`, [b] string: NUM_RESERVED + the place in the vocabulary of each token.

    UNKNOWN stands for tokens that are not in there and PADDING for none; more than `max_words` are cut off.
    """
    words = split_tokens(texts, tokens)[:, :max_words]
    places = words.with_flat_values(UNKNOWN + find_places(words.flat_values, vocabulary))
    return places.to_tensor(default_value=PADDING, shape=[None, max_words])


def split_tokens(texts: tf.Tensor, tokens: Tokens) -> tf.RaggedTensor:
    """Returns the tokens of `texts`, [b] string, ragged [b, any]: `tasks.prepare.vocabulary.find_tokens` of each."""
    texts = tf.where(tf.strings.regex_full_match(texts, f"[{UTF8}]*"), texts, "")
    if tokens.standardise != "none":
        texts = tf.strings.lower(texts)
    if tokens.standardise == "lower_and_strip_punctuation":
        texts = tf.strings.regex_replace(texts, f"[{re.escape(PUNCTUATION.decode())}]", "")
    return tf.strings.split(texts) if tokens.split == "whitespace" else tf.strings.unicode_split(texts, "UTF-8")
