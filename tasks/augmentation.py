"""Augmentation: how training images are changed at random, each kind a group of fields."""

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from tasks.section import Section


class Flip(Section):
    """Mirrors the image."""

    kind: Literal["flip"] = "flip"
    horizontal: bool = True
    """Left becomes right."""
    vertical: bool = False
    """Top becomes bottom; decided apart from left and right."""
    probability: float = Field(0.5, ge=0, le=1)
    """Share of the examples that are mirrored in each of these directions."""

    @model_validator(mode="after")
    def _does_something(self) -> "Flip":
        if not (self.horizontal or self.vertical):
            raise ValueError("must be horizontal, vertical or both")
        return self


class PadCrop(Section):
    """Adds a border and takes a window of the old size, anywhere: a shift by up to `pixels`."""

    kind: Literal["pad_crop"] = "pad_crop"
    pixels: int = Field(4, ge=1)
    """Width of the border, in pixels."""
    border: Literal["reflect", "zero"] = "reflect"
    """What the border shows: the image mirrored at its edge, or zeros."""


class RandomResizedCrop(Section):
    """Takes a window of random size and proportions, anywhere, and resizes it to the size of the image."""

    kind: Literal["random_resized_crop"] = "random_resized_crop"
    area: tuple[float, float] = (0.08, 1)
    """Least and largest share of the image that the window covers."""
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    """Least and largest width of the window over its height; its logarithm is uniform."""

    @field_validator("area", "ratio")
    @classmethod
    def _is_range(cls, bounds: tuple[float, float]) -> tuple[float, float]:
        if not 0 < bounds[0] <= bounds[1]:
            raise ValueError("must be two numbers above 0, the smaller one first")
        return bounds

    @field_validator("area")
    @classmethod
    def _is_share(cls, area: tuple[float, float]) -> tuple[float, float]:
        if area[1] > 1:
            raise ValueError("must be shares of the image, at most 1")
        return area


class Color(Section):
    """Changes brightness, contrast, saturation and hue, in this order; the image must be uint8."""

    kind: Literal["color"] = "color"
    brightness: float = Field(0, ge=0, le=1)
    """Pixels are multiplied by a factor from 1 - this to 1 + this."""
    contrast: float = Field(0, ge=0, le=1)
    """Their distance from the image's mean grey is multiplied by such a factor."""
    saturation: float = Field(0, ge=0, le=1)
    """Their distance from their own grey is multiplied by such a factor; RGB only."""
    hue: float = Field(0, ge=0, le=0.5)
    """The hue is turned by up to this share of the colour circle, either way; RGB only."""


class Cutout(Section):
    """Blanks a square with 0; its centre is anywhere in the image, what lies outside falls away."""

    kind: Literal["cutout"] = "cutout"
    size: int = Field(8, ge=1)
    """Side of the square, in pixels."""


class RandAugment(Section):
    """Applies random operations of a fixed list, all at one magnitude (Cubuk et al. 2020); the image must be uint8."""

    kind: Literal["rand_augment"] = "rand_augment"
    num_ops: int = Field(2, ge=1)
    """Operations in a row, of which each is drawn anew."""
    magnitude: float = Field(9, ge=0, le=10)
    """Their strength: 0 changes next to nothing, 10 is the most."""


class Mixup(Section):
    """Blends each image, and its label in the loss, with that of its neighbour in the batch (Zhang et al. 2018)."""

    kind: Literal["mixup"] = "mixup"
    alpha: float = Field(0.2, gt=0)
    """The own share is drawn from Beta(alpha, alpha): near 0 or 1 if small, uniform at 1."""
    probability: float = Field(1, ge=0, le=1)
    """Share of the examples that are blended."""


class Cutmix(Section):
    """Puts a box of the neighbour's image into each, and its label into the loss by the area (Yun et al. 2019)."""

    kind: Literal["cutmix"] = "cutmix"
    alpha: float = Field(1, gt=0)
    """The share of the image outside the box is drawn from Beta(alpha, alpha), before the box is cut at the edge."""
    probability: float = Field(1, ge=0, le=1)
    """Share of the examples that get a box."""


Augmentation = Annotated[
    Flip | PadCrop | RandomResizedCrop | Color | Cutout | RandAugment | Mixup | Cutmix, Field(discriminator="kind")
]
