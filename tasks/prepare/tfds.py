"""The TFDS metadata: the files that make a shard directory readable by tfds.load, without TensorFlow Datasets.

Formats: tensorflow_datasets/core/proto/{dataset_info,feature}.proto as JSON; protobuf writes an int64 as a string.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

from tasks.prepare.manifest import Feature, ShardManifest

_FEATURES = "tensorflow_datasets.core.features"


def shard_file(name: str, split: str, index: int, num_shards: int) -> str:
    """Returns the file name by which TFDS finds a shard."""
    return f"{name}-{split}.tfrecord-{index:05d}-of-{num_shards:05d}"


def tfds_metadata(manifest: ShardManifest) -> dict[str, str]:
    """Returns {file name: text} of dataset_info.json, features.json and the label names.

    Without the label names if TFDS would read others from a file of lines: it then knows the labels by their numbers.
    """
    texts = {"dataset_info.json": _json(_dataset_info(manifest)), "features.json": _json(_features(manifest))}
    if _names_classes(manifest) and _are_lines(manifest.label_map):
        texts[f"{manifest.target}.labels.txt"] = "".join(f"{label}\n" for label in manifest.label_map)
    return texts


def _names_classes(manifest: ShardManifest) -> bool:
    """Returns whether the label is an index into the label map, which TFDS knows for one class an example only."""
    return manifest.features[manifest.target].shape == ()


def _are_lines(label_map: Sequence[str]) -> bool:
    """Returns whether names stay apart as TFDS reads them: a line each, without the blanks around it."""
    names = {name.strip() for name in label_map if not re.search("[\r\n]", name)}
    return len(names - {""}) == len(label_map)


def _dataset_info(manifest: ShardManifest) -> dict[str, Any]:
    return {
        "name": manifest.name,
        "version": manifest.version,
        "fileFormat": "tfrecord",
        "splits": [
            {
                "name": name,
                "filepathTemplate": "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}",
                "numBytes": str(sum(shard.size_bytes for shard in split.shards)),
                "shardLengths": [str(shard.num_examples) for shard in split.shards],
            }
            for name, split in manifest.splits.items()
        ],
    }


def _features(manifest: ShardManifest) -> dict[str, Any]:
    features = {name: _tensor(feature) for name, feature in manifest.features.items()}
    if _names_classes(manifest):
        features[manifest.target] = {
            "pythonClassName": f"{_FEATURES}.class_label_feature.ClassLabel",
            "classLabel": {"numClasses": str(len(manifest.label_map))},
        }
    return {
        "pythonClassName": f"{_FEATURES}.features_dict.FeaturesDict",
        "featuresDict": {"features": features},
    }


def _tensor(feature: Feature) -> dict[str, Any]:
    if feature.kind == "image":
        return {
            "pythonClassName": f"{_FEATURES}.image_feature.Image",
            "image": {
                "shape": {"dimensions": [str(-1 if size is None else size) for size in feature.shape]},
                "dtype": "uint8",
                "encodingFormat": "png",  # of a new image; what is there is decoded by its content
            },
        }
    if feature.storage == "bytes_list":
        return {"pythonClassName": f"{_FEATURES}.text_feature.Text", "text": {}}
    return {
        "pythonClassName": f"{_FEATURES}.tensor_feature.Tensor",
        "tensor": {
            "shape": {"dimensions": [str(size) for size in feature.shape]},
            "dtype": feature.dtype,
            "encoding": "bytes" if feature.storage == "raw_bytes" else "none",
        },
    }


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=2, sort_keys=True) + "\n"
