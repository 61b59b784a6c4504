"""A package of its own, as TFDS wants it; the tests copy it and add url.txt and checksums.tsv."""
