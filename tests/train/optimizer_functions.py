"""What tests of optimizers run in a worker process."""

import inspect

import keras
import numpy as np
import tensorflow as tf

from tasks.distribution import Mirrored
from tasks.duration import Duration
from tasks.optimization import OPTIMIZERS, OptimizerConfig
from tasks.train.optimizer import build_optimizer
from tasks.train.schedule import learning_rate
from tasks.workers.devices import open_strategy

SHAPES = {"dense/kernel": (4, 3), "dense/bias": (3,), "conv/kernel": (2, 2, 3, 2)}


def keras_arguments():
    """Returns {class: {argument: its default}} of every optimizer that Keras exports and that stands alone."""
    found = {}
    for name, value in vars(keras.optimizers).items():
        if inspect.isclass(value) and issubclass(value, keras.optimizers.Optimizer):
            parameters = list(inspect.signature(value.__init__).parameters.values())[1:]
            required = [each for each in parameters if each.default is each.empty and each.kind != each.VAR_KEYWORD]
            if not required:
                found[name] = {each.name: each.default for each in parameters if each.kind != each.VAR_KEYWORD}
    return found


def differences_on_two_replicas():
    """Returns {optimizer: largest difference} of weights and state after three steps on two replicas and on one."""
    strategy = open_strategy(Mirrored(num_replicas=2))
    keras.config.set_floatx("float64")
    found = {}
    for name in OPTIMIZERS:
        config = OptimizerConfig(
            name=name,
            args={"weight_decay": 0.1},
            exclude_from_weight_decay=("bias",),
        )
        one, two = (_three_steps(config, each) for each in (tf.distribute.get_strategy(), strategy))
        assert len(one) == len(two)
        found[name] = max(float(np.abs(left - right).max()) for left, right in zip(one, two, strict=True))
    return found


def decayed(name, args, patterns):
    """Returns {path: what of each weight is left} by one step with a gradient of zero and a learning rate of 0.1."""
    strategy = open_strategy(Mirrored(num_replicas=2))
    keras.config.set_floatx("float64")
    config = OptimizerConfig(name=name, args=args, exclude_from_weight_decay=patterns)
    with strategy.scope():
        weights = _weights()
        before = [np.asarray(weight.value) for weight in weights]
        optimizer = build_optimizer(config, weights, 0.1)
    strategy.run(lambda: optimizer.apply([tf.zeros_like(weight.value) for weight in weights], weights))
    left = [np.asarray(weight.value) / values for weight, values in zip(weights, before, strict=True)]
    assert all(np.ptp(each) < 1e-12 for each in left)
    return {weight.path: float(each.flat[0]) for weight, each in zip(weights, left, strict=True)}


def learning_rates(optimizers, *, precision, total_steps, steps_per_epoch, global_batch_size, steps):
    """Returns what Keras's SGD takes for the learning rate after each of so many `steps`, for each of `optimizers`."""
    strategy = open_strategy(Mirrored(num_replicas=2))
    keras.config.set_floatx(precision)

    def resolve(duration):
        return Duration(duration).steps(
            num_examples=steps_per_epoch * global_batch_size,
            global_batch_size=global_batch_size,
            steps_per_epoch=steps_per_epoch,
        )

    found = []
    for optimizer in optimizers:
        config = OptimizerConfig.model_validate({"name": "sgd", **optimizer})
        with strategy.scope():
            rate = learning_rate(config, total_steps=total_steps, global_batch_size=global_batch_size, steps=resolve)
            built = build_optimizer(config, _weights(), rate)
        now = tf.function(lambda built=built: tf.convert_to_tensor(built.learning_rate))
        assert now().dtype.name == precision
        rates = []
        for step in steps:
            built.iterations.assign(step)
            rates.append(float(now()))
        found.append(rates)
    return found


def _weights():
    numbers = np.random.default_rng(0)
    found = []
    for path, shape in SHAPES.items():
        layer, name = path.split("/")
        with keras.name_scope(layer):
            found.append(keras.Variable(numbers.normal(size=shape), name=name))
    return found


def _three_steps(config, strategy):
    with strategy.scope():
        weights = _weights()
        optimizer = build_optimizer(config, weights, 0.1)
    numbers = np.random.default_rng(1)
    apply = tf.function(lambda gradients: strategy.run(lambda: optimizer.apply(gradients, weights)))
    for _ in range(3):
        apply([tf.constant(numbers.normal(size=shape)) for shape in SHAPES.values()])
    return [np.asarray(variable.value) for variable in (*weights, *optimizer.variables)]
