"""A TFDS data set that downloads an archive: index.csv and the images that it names."""

import csv
from pathlib import Path

import numpy as np
import tensorflow_datasets as tfds


class Fruit(tfds.core.GeneratorBasedBuilder):
    """Pictures of fruit."""

    VERSION = tfds.core.Version("1.0.0")
    BUILDER_CONFIGS = tuple(tfds.core.BuilderConfig(name=name, version="1.0.0") for name in ("ripe", "all-of.it"))

    def _info(self):
        features = tfds.features.FeaturesDict(
            {
                "image": tfds.features.Image(shape=(None, None, 3)),
                "text": tfds.features.Text(),
                "label": tfds.features.ClassLabel(names=["pear", "apple"]),
                "price": np.float32,
                "grid": tfds.features.Tensor(shape=(2, 2), dtype=np.int16),
                "from": {"country": tfds.features.ClassLabel(names=["de", "fr"]), "year": np.int32},
                "farm": np.str_,
                "boxes": tfds.features.Sequence(tfds.features.BBoxFeature()),
            }
        )
        return self.dataset_info_from_configs(features=features)

    def _split_generators(self, dl_manager):
        folder = dl_manager.download_and_extract(Path(__file__).with_name("url.txt").read_text())
        return {split: self._generate_examples(folder, split) for split in ("train", "test", "unlabelled")}

    def _generate_examples(self, folder, split):
        with open(folder / "index.csv", newline="") as file:
            for row in csv.DictReader(file):
                if row["split"] == split:
                    yield (
                        row["key"],
                        {
                            "image": folder / row["image"],
                            "text": row["text"],
                            "label": int(row["label"]),
                            "price": float(row["price"]),
                            "grid": np.full((2, 2), int(row["year"]), np.int16),
                            "from": {"country": row["country"], "year": int(row["year"])},
                            "farm": row["farm"],
                            "boxes": [],
                        },
                    )


class FruitByHand(Fruit):
    """Pictures of fruit that nobody serves."""

    MANUAL_DOWNLOAD_INSTRUCTIONS = "Ask the farmer for fruit.zip."

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples(dl_manager.manual_dir, "train")}
