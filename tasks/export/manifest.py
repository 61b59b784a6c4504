"""ExportManifest: what export hands on."""

from pathlib import Path

from tasks.files import COMPLETED, Record, digest_file, digest_json
from tasks.formats import Format

EXPORT = "export.json"
SERVING_DEFAULT = "serving_default"  # TensorFlow Serving's own name
TENSORS = "tensors"
SERIALIZED = "serialized"
LATENCY_BATCH_SIZES = (1, 64)


class SignatureInput(Record):
    """One argument of `serving_default`: a feature as it is stored."""

    feature: str
    """Its name in the shards."""
    kind: str
    """Its kind there: an image is the bytes of a JPEG or PNG, text and category are UTF-8, missing is 1 or 0."""
    shape: tuple[int, ...]
    """Without the batch dimension."""
    dtype: str


class SignatureOutput(Record):
    """One output of every signature."""

    shape: tuple[int, ...]
    """Without the batch dimension."""
    dtype: str


class Latency(Record):
    """How long a call of `serving_default` takes, in a process that did nothing else, on its first device."""

    batch_size: int
    num_calls: int
    """That were timed, after a few that were not."""
    p50_ms: float
    p95_ms: float


class ExportManifest(Record):
    """A SavedModel, and what lies beside it, that was reloaded and compared with the trained model."""

    directory: Path
    """models/<name>/<run id>/ in the workspace; holds saved_model.pb, export.json and COMPLETED."""
    step: int
    """Of the checkpoint."""
    digest: str
    """sha256 over names and contents of the model's files."""
    size_bytes: int
    """Of all of them."""
    formats: tuple[Format, ...]
    """As export.formats."""
    signatures: tuple[str, ...]
    """Of the SavedModel."""
    num_warmup_requests: int
    """Of each signature, in assets.extra/tf_serving_warmup_requests."""
    latencies: tuple[Latency, ...]
    num_parity_examples: int
    largest_difference: float
    """Over all signatures and formats, between the exported and the trained model: of a probability, or of a predicted
    number in deviations of the training split."""
    label_map: tuple[str, ...]
    """Names of classes, or of the numbers of a regression."""
    inputs: dict[str, SignatureInput]
    """What `serving_default` takes, by the name of the argument."""
    outputs: dict[str, SignatureOutput]
    """What every signature gives."""


def digest_model(directory: Path) -> str:
    """Returns the digest of the SavedModel in a directory as `ExportManifest.digest` has it; our own records apart."""
    files = [file for file in directory.rglob("*") if file.is_file()]
    ours = {directory / EXPORT, directory / COMPLETED}
    return digest_json(
        {file.relative_to(directory).as_posix(): digest_file(file) for file in files if file not in ours}
    )
