"""ExportManifest: what export hands on."""

from pathlib import Path

from tasks.files import Record

EXPORT = "export.json"
SERVING_DEFAULT = "serving_default"  # TensorFlow Serving's own name
SERIALIZED = "serialized"


class ExportManifest(Record):
    """A SavedModel that was reloaded and compared with the trained model."""

    directory: Path
    """models/<name>/<run id>/ in the workspace; holds saved_model.pb, export.json and COMPLETED."""
    digest: str
    """sha256 over names and contents of the SavedModel's files."""
    size_bytes: int
    signatures: tuple[str, ...]
    num_parity_examples: int
    largest_difference: float
    """Of any probability, over all signatures, between the exported and the trained model."""
    label_map: tuple[str, ...]
    input_shape: tuple[int, ...]
    """Without the batch dimension."""
    input_dtype: str
