"""A small table of every kind of column, and the type of what a test writes."""

import pyarrow as pa

Files = dict[str, str | bytes | pa.Table]
MAX = 2**63 - 1

TABLE = pa.table(
    {
        "n": [9007199254740993, -MAX, 0],
        "x": [0.1, 1e-300, 2.0],
        "word": ["ö", "a,b\nc", 'say "hi"'],
        "yes": [True, False, True],
        "y": ["b", "a", "b"],
    }
)
