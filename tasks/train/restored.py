"""The restored model: the run's model with the weights of one of its checkpoints."""

from pathlib import Path

import keras

from tasks.distribution import Distribute
from tasks.files import verify
from tasks.prepare.manifest import ShardManifest
from tasks.runs import Run
from tasks.train.checkpoint import load
from tasks.train.ema import Ema
from tasks.train.precision import precision_of_weights
from tasks.train.setup import build, set_precision_and_seeds


def restored_model(run: Run, manifest: ShardManifest, checkpoint: Path, distribute: Distribute) -> keras.Model:
    """Returns the run's model with the weights of `checkpoint`, or their averages if those are evaluated.

    It computes in the precision in which the weights are held.

    Call it in the scope of the strategy of `distribute`, and before another model is built: a checkpoint knows its
    variables by the names that Keras counts up in a process. Raises DataError if the checkpoint is damaged,
    TrainingError if it is another model's.
    """
    verify(checkpoint)
    set_precision_and_seeds(run.config.train, precision_of_weights(run.config.train.precision))
    model = build(run.config, manifest, distribute)
    ema = Ema(model.variables, run.config.train.ema)
    load(checkpoint, [*model.variables, *ema.variables])
    ema.put_in_place()
    return model
