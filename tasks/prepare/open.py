"""Opening a source: from its kind to the reader that knows it."""

from tasks.config import DataConfig
from tasks.download.record import RawData
from tasks.errors import ConfigError
from tasks.prepare.source import Part, Source
from tasks.prepare.targets import two_classes
from tasks.sources import ArraySource, DigitsSource, ImageFolderSource, TableSource, TextFolderSource, TfdsSource
from tasks.target import BinaryTarget


def open_source(config: DataConfig, raw: RawData, part: Part | None = None) -> Source:
    """Returns the opened source of `config`, on local disk in `raw`; with `part` it yields the examples of that alone.

    Raises DataError if what lies there is not such a source, ConfigError if the config does not fit it.
    """
    source = _open(config, raw, part)
    if isinstance(config.target, BinaryTarget):
        source = two_classes(source, config.target)
    if config.text is not None and all(feature.kind != "text" for feature in source.schema.features.values()):
        raise ConfigError(
            "data.text: the source has no text whose tokens could be counted; leave it out, or name a column in "
            "data.source.text if the source has columns"
        )
    return source


def _open(config: DataConfig, raw: RawData, part: Part | None) -> Source:
    # Each reader brings a library of its own, so only the one that is needed is imported.
    match config.source:
        case DigitsSource():
            from tasks.prepare.digits import Digits

            return Digits(raw.directory)
        case TableSource():
            from tasks.prepare.table.table import open_table

            return open_table(config, raw.directory, _files(raw), part)
        case ImageFolderSource():
            from tasks.prepare.image_folder import open_image_folder

            return open_image_folder(config, raw.directory, _files(raw), part)
        case TextFolderSource():
            from tasks.prepare.text_folder import open_text_folder

            return open_text_folder(config, raw.directory, _files(raw), part)
        case TfdsSource() | ArraySource():
            from tasks.prepare.staged import open_staged

            return open_staged(config, raw.directory)


def _files(raw: RawData) -> tuple[str, ...]:
    from tasks.download.listing import list_files

    return list_files(raw.directory, raw.pattern).files
