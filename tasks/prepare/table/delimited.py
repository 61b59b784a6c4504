"""DelimitedFiles: the tables of CSV files, whose values are text."""

import codecs
import csv
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from tasks.errors import ConfigError, DataError
from tasks.prepare.manifest import BadExample
from tasks.prepare.table.literals import TypeInference
from tasks.prepare.table.rows import Rows
from tasks.prepare.table.values import as_mask
from tasks.prepare.wording import shown
from tasks.sources import ColumnType, TableSource

BLOCK_CHARACTERS = 2 << 20
MAX_ROW_CHARACTERS = 16 << 20
"""A longer row is a quote that was never closed."""
_UNDECODABLE = re.compile("[\ud800-\udfff]")  # what surrogateescape makes of a byte that is not of the encoding


class DelimitedFiles:
    """CSV files below a directory, each with a header; opening them reads the headers."""

    def __init__(self, directory: Path, files: Sequence[str], source: TableSource) -> None:
        """Raises ConfigError for an impossible encoding or delimiter, DataError for a header that cannot be used."""
        self._directory, self._source = directory, source
        self._encoding = _encoding(source.encoding)
        if source.delimiter in '\r\n"':
            raise ConfigError(f"data.source.delimiter={source.delimiter!r}: ends a line or a value; use another")
        self._tokens = pc.ascii_trim_whitespace(pa.array(source.null_tokens, pa.string()))
        self._headers = {file: self._header(file) for file in files}
        self.types = {file: {name: pa.string() for name in names if name} for file, names in self._headers.items()}
        nameless = {index + 1 for names in self._headers.values() for index, name in enumerate(names) if not name}
        self.notes = tuple(f"column {index} has no name in the header and was left out" for index in sorted(nameless))

    def infer(self, names: Sequence[str]) -> dict[str, ColumnType]:
        """Returns the narrowest type of each column over all rows of all files; raises ConfigError if none will do."""
        inferences = {name: TypeInference(self._source.decimal_point) for name in names}
        for file in self._headers:
            for rows in self.read(file, names):
                for name, inference in inferences.items():
                    texts = rows.columns[name]
                    inference.add(texts, _Place(file, texts, rows))
        return {name: inference.type(name) for name, inference in inferences.items()}

    def read(self, file: str, names: Sequence[str]) -> Iterator[Rows]:
        """Yields all rows of a file with the columns `names` as text, null where it is one of the null tokens.

        A row with another number of values than the header, with a quote out of place or with bytes that are not of
        the encoding is bad. Raises DataError where a quote is never closed, and if the file cannot be read.
        """
        header = self._headers[file]
        delimiter = self._delimiter(file)
        csv.field_size_limit(MAX_ROW_CHARACTERS)  # of this process; Python's own 128 KB are less than some texts have
        first, rest, at_end = 1, "", False
        with self._text(file) as text:
            next(_lines(text, delimiter))
            while not at_end:
                block = text.read(BLOCK_CHARACTERS)
                rest, at_end = rest + block, not block
                whole = len(rest) if at_end else _end_of_lines(rest)
                table = _parse_plainly(rest[:whole], delimiter, header)
                bad: tuple[BadExample, ...] = ()
                if table is None:
                    parser = _Parser(file, header, delimiter, self._source.encoding, first)
                    whole = parser.parse(rest[:whole])
                    table, bad = parser.columns(), tuple(parser.bad)
                    if whole < len(rest) and (at_end or len(rest) > MAX_ROW_CHARACTERS):
                        raise DataError(
                            f"{self._directory / file}: row {first + len(parser.rows) + len(bad)} opens a quote that "
                            f"is never closed; close it, or leave it out"
                        )
                rest = rest[whole:]
                num_rows = len(table[0]) + len(bad)
                numbers = np.setdiff1d(np.arange(first, first + num_rows), [each.row for each in bad])
                first += num_rows
                yield Rows(numbers, {name: self._with_nulls(table[header.index(name)]) for name in names}, bad)

    def _with_nulls(self, texts: pa.Array) -> pa.Array:
        missing = as_mask(pc.is_in(pc.ascii_trim_whitespace(texts), value_set=self._tokens))
        return pc.if_else(pa.array(missing), pa.scalar(None, pa.string()), texts) if missing.any() else texts

    def _delimiter(self, file: str) -> str:
        name = file.rpartition("/")[2].lower()
        return "\t" if ".tsv" in name and self._source.delimiter == "," else self._source.delimiter

    def _header(self, file: str) -> list[str]:
        try:
            with self._text(file) as text:
                names = [name.strip() for name in next(_lines(text, self._delimiter(file)), [])]
        except csv.Error as error:
            raise DataError(f"{self._directory / file}: has a header that is no CSV ({error}); mend it") from None
        if not any(names):
            raise DataError(
                f"{self._directory / file}: has no header; write the names of the columns into its first line"
            )
        for index, name in enumerate(names):
            if name and name in names[:index]:
                raise DataError(f"{self._directory / file}: has two columns {name!r}; rename one of them")
            if _UNDECODABLE.search(name):
                raise DataError(
                    f"{self._directory / file}: has a header that is not {self._source.encoding}; set "
                    f"data.source.encoding, for example to latin-1"
                )
        return names

    @contextmanager
    def _text(self, file: str) -> Iterator[io.TextIOWrapper]:
        """Yields a file's text, unpacked if its name ends in .gz, .bz2 or .zst; DataError if it cannot be read."""
        path = self._directory / file
        try:
            with (
                pa.input_stream(str(path)) as stream,
                io.TextIOWrapper(stream, self._encoding, errors="surrogateescape", newline="") as text,
            ):
                yield text
        except (OSError, pa.ArrowException) as error:
            raise DataError(f"{path}: cannot be read ({error}); fetch it anew") from error
        except UnicodeError as error:
            reason = error.reason if isinstance(error, UnicodeDecodeError) else error
            raise DataError(
                f"{path}: is not {self._source.encoding} ({reason}); set data.source.encoding to what it is"
            ) from None


class _Place:
    """Says what a value is and where it stands."""

    def __init__(self, file: str, texts: pa.Array, rows: Rows) -> None:
        self._file, self._texts, self._rows = file, texts, rows

    def __call__(self, index: int) -> str:
        return f"{shown(self._texts[index].as_py())} in row {self._rows.numbers[index]} of {self._file}"


class _Parser:
    """A part of a CSV file, row by row."""

    def __init__(self, file: str, header: Sequence[str], delimiter: str, encoding: str, first: int) -> None:
        self._file, self._header, self._delimiter = file, header, delimiter
        self._encoding, self._first = encoding, first
        self.rows: list[list[str]] = []
        self.bad: list[BadExample] = []

    def parse(self, text: str) -> int:
        """Returns how many characters make whole rows, after taking them."""
        lines = list(io.StringIO(text, newline=""))
        reader = csv.reader(lines, delimiter=self._delimiter, strict=True)
        check = _UNDECODABLE.search(text) is not None
        while True:
            start = reader.line_num
            try:
                row = next(reader)
            except StopIteration:
                return len(text)
            except csv.Error as error:
                if str(error) == "unexpected end of data":
                    return sum(map(len, lines[:start]))
                self._refuse(_misquoted(reader.line_num - start))
                continue
            if not row and len(self._header) > 1:
                continue  # an empty line
            row = row or [""]
            if len(row) != len(self._header):
                self._refuse(f"has {len(row)} values, not {len(self._header)}")
            elif check and (wrong := [n for n, v in zip(self._header, row, strict=True) if _UNDECODABLE.search(v)]):
                self._refuse(f"is not {self._encoding}; set data.source.encoding", wrong[0])
            else:
                self.rows.append(row)

    def columns(self) -> list[pa.Array]:
        """Returns the good rows as columns of strings."""
        columns = zip(*self.rows, strict=True) if self.rows else [()] * len(self._header)
        return [pa.array(column, pa.string()) for column in columns]

    def _refuse(self, reason: str, column: str | None = None) -> None:
        row = self._first + len(self.rows) + len(self.bad)
        self.bad.append(BadExample(path=self._file, row=row, column=column, reason=reason))


def _parse_plainly(text: str, delimiter: str, header: Sequence[str]) -> list[pa.Array] | None:
    """Returns the columns of a text without quotes in which all is well, else None: pyarrow is ten times as fast."""
    if '"' in text or not text or not delimiter.isascii():
        return None
    try:
        data = text.encode()
        names = [str(index) for index in range(len(header))]
        table = pa_csv.read_csv(
            pa.BufferReader(data),
            pa_csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names),
            pa_csv.ParseOptions(delimiter=delimiter, quote_char=False, ignore_empty_lines=len(header) > 1),
            pa_csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string())),
        )
    except (UnicodeEncodeError, pa.ArrowInvalid):
        return None
    return [column.combine_chunks() for column in table.columns]


def _lines(text: io.TextIOWrapper, delimiter: str) -> Iterator[list[str]]:
    return csv.reader(iter(text.readline, ""), delimiter=delimiter, strict=True)


def _misquoted(num_lines: int) -> str:
    return "has a quote out of place" + (f", which joins {num_lines} lines" if num_lines > 1 else "")


def _end_of_lines(text: str) -> int:
    # A carriage return at the very end may be half of a line's end.
    return text.rfind("\n") + 1 or text.rfind("\r", 0, -1) + 1


def _encoding(name: str) -> str:
    try:
        found = codecs.lookup(name).name
        "".encode(found)
    except (LookupError, ValueError):
        raise ConfigError(
            f"data.source.encoding={name!r}: is no encoding of text; use one such as utf-8, latin-1 or cp1252"
        ) from None
    return "utf-8-sig" if found == "utf-8" else found  # a byte order mark is no part of the first name
