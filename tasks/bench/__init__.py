"""Both sides of every comparison, measured in one run: ours and its rivals."""
