"""Sources: where examples come from, and how what lies there is to be read."""

import re
from typing import Annotated, Literal
from urllib.parse import parse_qsl, urlsplit

from pydantic import Field, JsonValue, field_validator, model_validator

from tasks.section import Section, kind_if_none
from tasks.size import Size

# Names of query parameters that grant access: token, api_key, X-Amz-Signature, sig.
_SECRET = re.compile(
    r"(.*[-_])?(token|secret|signature|sig|credential|password|passwd|pwd|auth|(api|access)?[-_]?key)", re.IGNORECASE
)

MaxPixels = Annotated[int, Field(ge=1, le=178_956_970)]
"""At most what Pillow allows."""
ColumnType = Literal["int64", "float32", "float64", "bool", "string", "date", "timestamp"]


class DigitsSource(Section):
    """The 1,797 handwritten digits, 8x8 pixels, that come with scikit-learn."""

    kind: Literal["digits"] = "digits"


class Located(Section):
    """What every source of files has: a place on disk or on a server."""

    path: str
    """File, folder or glob, relative to the present folder; package://NAME/FILE for a file of an installed package;
    or a URL (https, s3, gs, file) that download fetches, with the login of ~/.netrc or of the cloud's own tools."""
    sha256: str | None = Field(None, pattern=r"^[0-9a-f]{64}$")
    """sha256 that the fetched file must have; default: not checked."""
    max_unpacked: Size = Size("200 GB")
    """Most bytes that a fetched archive (.zip, .tar, .tar.gz, .tar.bz2, .tar.xz, .gz, .bz2, .xz) may unpack to."""

    @field_validator("path")
    @classmethod
    def _tells_no_secret(cls, path: str) -> str:
        # It would stand in the run's config.yaml, in MLflow, in Prefect and in the shell's history.
        if "://" in path:
            parts = urlsplit(path)
            if "@" in parts.netloc:
                raise ValueError("must have no user name or password, which ~/.netrc or the cloud's own tools keep")
            for name, _ in parse_qsl(parts.query, keep_blank_values=True):
                if _SECRET.fullmatch(name):
                    raise ValueError(
                        f"must have no {name}, which would be kept with every run: use ~/.netrc, the cloud's own "
                        "s3:// or gs://, or fetch it by hand"
                    )
        return path


class TableSource(Located):
    """Parquet, CSV, JSON lines or Arrow (Feather) files; folders named column=value add that column."""

    kind: Literal["table"] = "table"
    format: Literal["auto", "parquet", "csv", "json", "arrow"] = "auto"
    """Format of the files; auto: by the end of their names."""
    target: str | Annotated[list[str], Field(min_length=1)]
    """Column that is learned. Several: the numbers of a regression, or the classes of a multi_label target, 0 or 1."""
    columns: list[str] | None = Field(None, min_length=1)
    """Columns that go into the model; default: all but the target, the id and the column of data.splits."""
    text: list[str] = []
    """Columns of free text; any other column of strings holds categories."""
    id: str | None = None
    """Column whose value names a row, in messages and for its split; default: file and row number."""
    types: dict[str, ColumnType] = {}
    """Types of columns, in place of those that the files give or their values show."""
    classes: list[str] | None = Field(None, min_length=1)
    """The classes in the order of their labels; default: all values of the target, sorted."""
    missing: Literal["refuse", "keep"] = "refuse"
    """Rows with a missing value: refuse makes them bad ones, keep marks the value for the model."""
    null_tokens: list[str] = [""]
    """Texts in a CSV that mean a missing value, such as NA, NULL or -; they take the place of the empty one."""
    delimiter: str = Field(",", min_length=1, max_length=1)
    """What stands between two values of a CSV."""
    encoding: str = "utf-8"
    """Encoding of a CSV."""
    decimal_point: Literal[".", ","] = "."
    """What stands before the decimals of a CSV's numbers."""

    @property
    def targets(self) -> tuple[str, ...]:
        """The columns that are learned."""
        return (self.target,) if isinstance(self.target, str) else tuple(self.target)


class ImageFolderSource(Located):
    """Images in <path>/<class>/ or <path>/<split>/<class>/; what is an image is decided by content, not by name."""

    kind: Literal["image_folder"] = "image_folder"
    classes: list[str] | None = Field(None, min_length=1)
    """The class folders in the order of their labels; default: all, sorted with numbers as numbers."""
    store: Literal["encoded", "jpeg", "png", "raw"] = "encoded"
    """In the shards: the file's own bytes if all decoders read them alike (else as PNG), JPEG, PNG, or bare pixels."""
    short_side: int | None = Field(None, ge=1, le=16384)
    """Pixels of the shorter side after resizing, once, when sharding; default: as it is. `raw` cuts to the square."""
    quality: int = Field(90, ge=1, le=100)
    """Quality of JPEG."""
    channels: Literal[1, 3] = 3
    """1: grey, 3: RGB."""
    max_pixels: MaxPixels = 50_000_000
    """Most pixels of an image, by its header; a larger one is bad and never decoded. At most what Pillow allows."""

    @model_validator(mode="after")
    def _fits(self) -> "ImageFolderSource":
        if self.store == "raw" and self.short_side is None:
            raise ValueError("must have short_side with store: raw, because bare pixels need one shape")
        if self.store == "encoded" and self.short_side is not None:
            raise ValueError(
                "must have store: jpeg, png or raw with short_side, because a resized image is encoded anew"
            )
        return self


class TextFolderSource(Located):
    """Text files in <path>/<class>/ or <path>/<split>/<class>/."""

    kind: Literal["text_folder"] = "text_folder"
    classes: list[str] | None = Field(None, min_length=1)
    """The class folders in the order of their labels; default: all, sorted with numbers as numbers."""
    encoding: str = "utf-8"
    """Encoding of the files; they are stored as UTF-8."""
    max_size: Size = Size("1 MB")
    """Most bytes of a text; a larger one is bad."""


class TfdsSource(Section):
    """A data set of TensorFlow Datasets, read in a worker process."""

    kind: Literal["tfds"] = "tfds"
    name: str = Field(pattern=r"^[a-z]\w*(/[\w.-]+)?(:(\d+\.\d+\.\d+|\*))?$")
    """name, name/config or name/config:version, such as imdb_reviews/plain_text:1.0.0."""
    module: str | None = None
    """Module that registers a data set of your own, found in `folder`; default: one that comes with TFDS."""
    folder: str | None = None
    """Folder put on the import path for `module`; default: the config's own folder."""
    data_dir: str | None = None
    """Folder where TFDS keeps its data; what is prepared there already is used. Default: tfds/ in the workspace."""
    inputs: list[str] | None = Field(None, min_length=1)
    """Features that go into the model; default: all but the target."""
    target: str = "label"
    """Feature that is learned."""
    max_pixels: MaxPixels = 50_000_000
    """Most pixels of an image, by its header; a larger one is bad and never decoded."""


class ArraySource(Section):
    """A reader of yours: a function that yields examples as dicts of numbers, arrays, text or bytes."""

    kind: Literal["array"] = "array"
    read: str = Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")
    """Import path 'module:function'; called as f(**args), yields {name: value}, all with the same names. Two are no
    inputs: `split`, the official split that the example is in, and `key`, a text by which it is known."""
    args: dict[str, JsonValue] = {}
    """Arguments of the function."""
    folder: str | None = None
    """Folder put on the import path; default: the config's own folder."""
    version: str = "1"
    """Any text; change it when what the function reads has changed, for only its source code is watched."""
    target: str = "label"
    """Name of what is learned."""
    text: list[str] = []
    """Names of free text; any other text is a category."""
    images: list[str] = []
    """Names of bytes that are encoded images, of any format that an image folder may hold."""
    max_pixels: MaxPixels = 50_000_000
    """Most pixels of an image, by its header; a larger one is bad and never decoded."""
    classes: list[str] | None = Field(None, min_length=1)
    """The classes in the order of their labels; default: all values of the target, sorted."""


Source = Annotated[
    DigitsSource | TableSource | ImageFolderSource | TextFolderSource | TfdsSource | ArraySource,
    Field(discriminator="kind"),
    kind_if_none("digits"),
]
