"""The one MLflow run of a pipeline run."""
