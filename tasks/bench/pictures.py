"""Pictures: JPEGs in class folders that look like photographs to a codec: shades and edges, no noise."""

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from tasks.bench.arrays import NUM_CLASSES

SIZE = (500, 375)  # width and height in pixels: the usual one of ImageNet
NUM_SHAPES = 100
QUALITY = 95


def write_pictures(folder: Path, num_pictures: int) -> None:
    """Writes <folder>/<class>/<number>.jpg, of about the same number in each class; the same bytes every time."""
    for number in range(num_pictures):
        file = folder / str(number % NUM_CLASSES) / f"{number:06d}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        _picture(np.random.default_rng([0, number])).save(file, quality=QUALITY)


def _picture(random: np.random.Generator) -> Image.Image:
    gradients = (Image.linear_gradient("L"), Image.radial_gradient("L"))
    picture = Image.merge(
        "RGB", [gradients[random.integers(2)].rotate(90 * int(random.integers(4))).resize(SIZE) for _ in range(3)]
    )
    draw = ImageDraw.Draw(picture)
    for _ in range(NUM_SHAPES):
        corners = random.integers((0, 0), SIZE, (3, 2))
        color = tuple(int(part) for part in random.integers(0, 256, 3))
        if random.integers(2):
            draw.ellipse([*corners[:2].min(axis=0).tolist(), *corners[:2].max(axis=0).tolist()], fill=color)
        else:
            draw.polygon([tuple(corner) for corner in corners.tolist()], fill=color)
    return picture.filter(ImageFilter.GaussianBlur(0.7))
