"""ShardManifest: what prepare hands on, and all that a reader may believe about shards."""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, JsonValue

from tasks.files import Record
from tasks.texts import Tokens

MANIFEST = "manifest.json"
QUARANTINE = "quarantine.jsonl"  # the bad examples, a BadExample a line; there only if there are some
JPEG = b"\xff\xd8"  # how an encoded image begins that is no PNG
OFFSET_STRIDE = 64  # examples between two recorded byte offsets: a reader can start at each of them
INT64 = range(-(2**63), 2**63)  # the numbers that a feature of int64 can hold

Kind = Literal["tensor", "image", "text", "category", "number", "label", "id", "missing"]
Dtype = Literal["uint8", "int64", "float32", "float64", "string"]
Storage = Literal["raw_bytes", "int64_list", "float_list", "bytes_list"]

_SCALAR_STORAGE: dict[Dtype, Storage] = {
    "int64": "int64_list",
    "float32": "float_list",
    "float64": "raw_bytes",  # tf.train.Example has no list of them
    "string": "bytes_list",
}


class Feature(Record):
    """One feature of an example as it is stored; `tasks.feed.preprocess` makes of it what a model sees."""

    kind: Kind
    """What it means. tensor: the model gets it as it is; image: an encoded JPEG or PNG; number: a scalar to normalise;
    missing: 1 where the value of another feature is missing, else 0."""
    shape: tuple[int | None, ...]
    """Without the batch; an image's is [None, None, channels]."""
    dtype: Dtype
    storage: Storage
    """raw_bytes: one bytes value in C order, to be decoded with decode_raw; bytes_list: one bytes value as it is (an
    image or UTF-8); int64_list and float_list: as they are."""
    missing: str | None = None
    """The feature that marks where this one is missing (there it is 0 or empty); None: it never is."""

    @classmethod
    def of(
        cls, kind: Kind, dtype: Dtype = "string", shape: tuple[int | None, ...] = (), *, missing: str | None = None
    ) -> Self:
        """Returns the feature in the storage of its kind and dtype: a tensor as raw bytes, all else in a list."""
        storage = "raw_bytes" if kind == "tensor" else _SCALAR_STORAGE[dtype]
        return cls(kind=kind, shape=shape, dtype=dtype, storage=storage, missing=missing)


class BadExample(Record):
    """An example that cannot be used, and why."""

    path: str
    """File that it is in, below the source."""
    row: int | None = None
    """Its row in the file, counted from 1 without the header; None: the file is one example."""
    column: str | None = None
    """Column whose value is wrong."""
    reason: str
    """What is wrong, as the end of a sentence: 'is 12.x, not a whole number'."""


class Shard(Record):
    """One TFRecord file."""

    file: str
    """Name inside the shard directory."""
    num_examples: int
    size_bytes: int
    """Of the file."""
    record_bytes: int
    """Of the records and their frames, before compression."""
    sha256: str
    offsets: tuple[int, ...]
    """Byte offset of every OFFSET_STRIDE-th record, the first included; in the file, if that is not compressed."""


class SplitManifest(Record):
    """One split: its shards in order, and its classes."""

    num_examples: int
    class_counts: tuple[int, ...]
    """Examples of each class, in the order of the label map; of a regression empty."""
    shards: tuple[Shard, ...]


class Histogram(Record):
    """How many numbers lie in each bin; `tasks.prepare.histogram` makes, merges and compares them."""

    dropped_bits: int = 0
    """Of the 64 of a float64: numbers that differ in so many of their lowest bits alone are in one bin."""
    numbers: tuple[float, ...] = ()
    """Of each bin that is not empty the number nearest to 0, ascending."""
    counts: tuple[int, ...] = ()
    """Numbers in each of these bins."""


class FeatureStatistics(Record):
    """One feature over the examples of the training split."""

    num_missing: int = 0
    mean: float | None = None
    """Mean of a number's values that are not missing; None for other kinds, and if all are missing."""
    std: float | None = None
    """Their standard deviation, over n."""
    min: float | None = None
    max: float | None = None
    quantiles: dict[str, float] | None = None
    """Values below which 1, 5, 25, 50, 75, 95 and 99 % of the values lie, by linear interpolation: {'0.01': ...}."""
    histogram: Histogram | None = None
    """Of the same values; None for other kinds, and if all are missing."""
    vocabulary: tuple[tuple[str, int], ...] | None = None
    """A category's values with their counts, the most frequent first, equal counts by their text; so too the tokens of
    a text, at most data.text.max_vocabulary, if they were asked for; None for others."""
    num_left_out: int = 0
    """Different tokens of a text that are not in the vocabulary, because others are more frequent."""
    num_tokens: int | None = None
    """All tokens of a text, each as often as it stands there; None if they were not asked for, and for others."""


class Generation(Record):
    """Examples that came into the source together, and whose shards were written together."""

    number: int
    """Counted from 1, in the order in which they came."""
    source_digest: str
    """RawData.digest of the source as it was when they were read, with the files of the generations before."""
    num_rows: int
    """Of the source that were read, good and bad: the ids of the next generation begin behind them."""
    num_examples: dict[str, int]
    """New ones in each split."""
    num_shards: dict[str, int]
    """Of each split: those that follow on the shards of the generations before."""


class ShardManifest(Record):
    """A set of shards, complete and verified."""

    name: str
    version: str
    data_digest: str
    """Digest of source, data config and format: the name of the directory, and part of a run's key."""
    source_digest: str
    """RawData.digest of what the examples were read from."""
    seed: int
    offset_stride: int
    compression: Literal["none", "gzip", "zlib"]
    """Of the shards; offsets are those of the records before it."""
    inputs: tuple[str, ...]
    """Names of the features that go into the model."""
    target: str
    """Name of the label feature."""
    id: str
    """Name of the feature that identifies an example: its row in the source, in the order of arrival, int64."""
    features: dict[str, Feature]
    label_map: tuple[str, ...]
    """Class names; the label is an index into it, or 0 or 1 for each. Of a regression the names of the numbers."""
    splits: dict[str, SplitManifest]
    statistics: dict[str, FeatureStatistics]
    """Of numbers, categories and the tokens of texts, by feature, of images by 'feature.height' and 'feature.width'
    in pixels, of tensors of uint8 by 'feature.brightness', the mean of at most 64 of their values spread evenly, and of
    the numbers of a regression by 'label.0', 'label.1' and so on."""
    config: dict[str, JsonValue]
    """The group `data` of the config, without its operational fields."""
    num_bad: int
    """Examples that were left out; QUARANTINE lists each with its reason."""
    notes: tuple[str, ...]
    """What a user should know of the source: files that were left out, what was inferred."""
    code_version: str
    meanings: dict[str, str] = Field(default_factory=dict)
    """What the values of a table's columns were before they were stored, by feature: int, date, text and so on."""
    generations: tuple[Generation, ...] = ()
    """With data.append those that the shards are of, in the order in which they came; else none."""

    @property
    def tokens(self) -> Tokens | None:
        """How the vocabularies of texts were counted; None: they were not."""
        text = self.config.get("text")
        return None if text is None else Tokens.model_validate(text)

    @property
    def target_kind(self) -> str:
        """Which of data.target.kind the labels are."""
        target = self.config.get("target")
        return str(target["kind"]) if isinstance(target, dict) else "multiclass"

    @property
    def num_outputs(self) -> int:
        """Numbers that a model gives for each example: one a class, or one for two."""
        return 1 if self.target_kind == "binary" else len(self.label_map)

    @property
    def target_scale(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and deviation in the training split of each number of a regression; 1 for one that does not vary."""
        found = [self.statistics[f"{self.target}.{place}"] for place in range(len(self.label_map))]
        return tuple(each.mean or 0.0 for each in found), tuple(each.std or 1.0 for each in found)


class Verification(Record):
    """What `millstream prepare --verify` found."""

    directory: Path
    num_files: int
    """Files that belong there."""
    damages: dict[str, str]
    """What is wrong with each file that is damaged, missing or foreign."""


class Shards(Record):
    """Where the shards of a run lie; crosses the door in place of the whole manifest."""

    directory: Path
    """data/<digest>/<name>/<version>/ in the workspace."""
    data_digest: str
    num_shards: int
    num_examples: dict[str, int]
    """Examples of each split."""
    num_bad: int
    """Examples that were left out, listed in quarantine.jsonl."""
    reused: bool
    """True if they were there already and nothing was written."""

    def manifest(self) -> ShardManifest:
        """Returns the manifest; raises DataError if it cannot be read."""
        return ShardManifest.read(self.directory / MANIFEST)
