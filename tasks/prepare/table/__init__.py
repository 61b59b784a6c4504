"""Tables as a source: Parquet, CSV, JSON lines and Arrow files, opened by table.py.

In the order of the work: the formats (columnar, delimited, json_lines; partitions for folders named column=value) give
rows; roles says which column is what, usage how each is read (columns: the rule of every Arrow type; literals: what is
written in text), facts what must be known of all rows, and layout puts these together into what table reads by.
"""
