"""Exact metrics of the best checkpoint, plots and the report."""
