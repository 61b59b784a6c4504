"""Residual networks for images (He et al., CVPR 2016), batch normalisation over the whole global batch."""

import keras

from tasks.errors import ConfigError
from tasks.models.layers import SyncBatchNorm

# Blocks of each stage, and whether a block is a bottleneck of three convolutions (their Table 1).
DEPTHS = {
    18: ((2, 2, 2, 2), False),
    34: ((3, 4, 6, 3), False),
    50: ((3, 4, 6, 3), True),
    101: ((3, 4, 23, 3), True),
    152: ((3, 8, 36, 3), True),
}
STEMS = ("large", "small")


def build(
    inputs: dict[str, keras.KerasTensor],
    num_classes: int,
    *,
    depth: int = 50,
    stem: str = "large",
    width: int = 64,
    weight_decay: float = 0.0,
    momentum: float = 0.9,
) -> keras.Model:
    """Returns a model of logits [b, num_classes] for one image: [b, h, w, c] uint8.

    `stem`: large halves the image twice before the first stage (224 pixels), small keeps it (CIFAR's 32). A bottleneck
    strides in its second convolution, known as v1.5. `weight_decay` is on all kernels and part of the loss, half of it
    times the sum of squares. `momentum` is that of the batch normalisation. Raises ConfigError if the arguments or the
    data do not fit.
    """
    if depth not in DEPTHS or stem not in STEMS or len(inputs) != 1:
        raise ConfigError(
            f"model.build={__name__}:build: takes one image, depth {', '.join(map(str, DEPTHS))} and stem "
            f"{' or '.join(STEMS)}; it got {', '.join(inputs)}, depth {depth} and stem {stem}"
        )
    stages, bottleneck = DEPTHS[depth]
    layers = _Layers(weight_decay, momentum)

    [image] = inputs.values()
    x = keras.layers.Rescaling(1 / 127.5, offset=-1)(image)
    x = layers.convolution(x, width, kernel=7 if stem == "large" else 3, stride=2 if stem == "large" else 1)
    if stem == "large":
        x = keras.layers.MaxPooling2D(3, strides=2, padding="same")(x)
    for stage, num_blocks in enumerate(stages):
        for block in range(num_blocks):
            x = layers.block(x, width * 2**stage, stride=2 if stage and not block else 1, bottleneck=bottleneck)
    x = keras.layers.GlobalAveragePooling2D()(x)
    head = keras.layers.Dense(num_classes, kernel_regularizer=layers.penalty(), dtype=keras.config.floatx())
    return keras.Model(inputs, head(x))


class _Layers:
    """What the parts of one network have in common."""

    def __init__(self, weight_decay: float, momentum: float) -> None:
        self._weight_decay, self._momentum = weight_decay, momentum

    def penalty(self) -> keras.regularizers.Regularizer | None:
        return keras.regularizers.L2(self._weight_decay / 2) if self._weight_decay else None

    def convolution(
        self, x: keras.KerasTensor, filters: int, *, kernel: int, stride: int = 1, relu: bool = True
    ) -> keras.KerasTensor:
        """Returns x convolved, without a bias, and normalised."""
        x = keras.layers.Conv2D(
            filters,
            kernel,
            strides=stride,
            padding="same",
            use_bias=False,
            kernel_initializer="he_normal",
            kernel_regularizer=self.penalty(),
        )(x)
        x = SyncBatchNorm(momentum=self._momentum, epsilon=1e-5)(x)
        return keras.layers.ReLU()(x) if relu else x

    def block(self, x: keras.KerasTensor, filters: int, *, stride: int, bottleneck: bool) -> keras.KerasTensor:
        """Returns x with two or three convolutions of it added, projected where the shapes differ."""
        if bottleneck:
            y = self.convolution(x, filters, kernel=1)
            y = self.convolution(y, filters, kernel=3, stride=stride)
            y = self.convolution(y, 4 * filters, kernel=1, relu=False)
        else:
            y = self.convolution(x, filters, kernel=3, stride=stride)
            y = self.convolution(y, filters, kernel=3, relu=False)
        if x.shape != y.shape:
            x = self.convolution(x, y.shape[-1], kernel=1, stride=stride, relu=False)
        return keras.layers.ReLU()(x + y)
