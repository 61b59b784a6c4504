"""The rooms of the pipeline: one folder a stage, `task.py` its only door."""
