"""The Prefect flows, one line a stage, and the `millstream` command."""
