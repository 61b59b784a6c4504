"""The vocabulary: tokens of texts, counted exactly and in bounded memory."""

import sqlite3
import string
from collections import Counter

from tasks.errors import DataError
from tasks.prepare.manifest import FeatureStatistics
from tasks.texts import Tokens

MAX_DIFFERENT = 500_000
"""Different tokens counted in memory, some 100 bytes each; more go to a temporary database on disk."""
MAX_BYTES = 2**28
"""Bytes of text counted in memory, which bounds the tokens' own length."""

PUNCTUATION = string.punctuation.encode()


def find_tokens(text: bytes, tokens: Tokens) -> list[bytes]:
    """Returns the tokens of a text in their order: none of one that is not UTF-8.

    Only ASCII's case, punctuation and whitespace count, so that `tasks.feed.words` finds the very same, whatever
    Unicode's version. A character is a code point.
    """
    try:
        text.decode()
    except UnicodeDecodeError:
        return []
    if tokens.standardise != "none":
        text = text.lower()
    if tokens.standardise == "lower_and_strip_punctuation":
        text = text.translate(None, PUNCTUATION)
    return text.split() if tokens.split == "whitespace" else [character.encode() for character in text.decode()]


class WordCounts:
    """How often each token was met so far; memory is bounded by MAX_DIFFERENT and MAX_BYTES, whatever the texts.

    Raises DataError if what does not fit there finds no room on disk either.
    """

    def __init__(self, tokens: Tokens) -> None:
        """Begins with none."""
        self._tokens = tokens
        self._counts: Counter[bytes] = Counter()
        self._num_bytes = 0
        self._database: sqlite3.Connection | None = None

    def add(self, text: bytes) -> None:
        """Counts the tokens of a text."""
        self._counts.update(find_tokens(text, self._tokens))
        self._num_bytes += len(text)
        if len(self._counts) > MAX_DIFFERENT or self._num_bytes > MAX_BYTES:
            self._database = self._spilled()

    def result(self, *, num_missing: int) -> FeatureStatistics:
        """Returns the vocabulary of all tokens, equally frequent ones in the order of their text; ends the count."""
        database = self._spilled()
        try:
            num_different, num_tokens = database.execute("SELECT count(*), coalesce(sum(n), 0) FROM counts").fetchone()
            most_frequent = database.execute(
                "SELECT token, n FROM counts ORDER BY n DESC, token LIMIT ?", [self._tokens.max_vocabulary]
            )  # bytes of UTF-8 are in the order of their text
            vocabulary = tuple((token.decode(), count) for token, count in most_frequent)
        finally:
            database.close()
        return FeatureStatistics(
            num_missing=num_missing,
            vocabulary=vocabulary,
            num_left_out=num_different - len(vocabulary),
            num_tokens=num_tokens,
        )

    def _spilled(self) -> sqlite3.Connection:
        """Returns the database, with what was in memory added to it."""
        database = self._database
        if database is None:
            database = sqlite3.connect("")  # a temporary file, which goes with the connection
            database.execute("PRAGMA journal_mode = OFF")
            database.execute("CREATE TABLE counts (token BLOB PRIMARY KEY, n INTEGER NOT NULL) WITHOUT ROWID")
        try:
            database.executemany(
                "INSERT INTO counts VALUES (?, ?) ON CONFLICT (token) DO UPDATE SET n = n + excluded.n",
                sorted(self._counts.items()),  # neighbours lie on the same page
            )
            database.commit()
        except sqlite3.OperationalError as error:
            database.close()
            raise DataError(
                f"data.text: the tokens cannot be counted ({error}); make room in the folder of temporary files, or "
                "name another in SQLITE_TMPDIR"
            ) from error
        self._counts.clear()
        self._num_bytes = 0
        return database
