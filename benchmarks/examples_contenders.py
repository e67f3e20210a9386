"""`models/resnet.py` and `models/transformer.py` in two sizes: by this library, and by hand.

By hand is a `tf.function` loop around the same logits, loss and optimizer.
"""

import dataclasses
import functools
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import estimator as est
from benchmarks.ours import ReportHook
from benchmarks.wide_deep_contenders import run_loops
from models import classification, resnet, schedules, transformer
from models.layerwise_adamw import LayerwiseAdamW

Report = Callable[[int], bool]
_TRAIN_STEPS = 10**6


@dataclasses.dataclass(frozen=True)
class Example:
    """A model of `models/`, and how to train it without this library.

    `make_feature(random, count)` gives the values of the model's one feature, and
    `make_optimizer(step)` the optimizer. `weight_decay` is that of the loss, `clip_norm` 0 for
    gradients as they are. `settings` replace the model's defaults.
    """

    model: types.ModuleType
    loop_steps: int
    batch_size: int
    feature: str
    make_feature: Callable[[np.random.Generator, int], np.ndarray]
    make_optimizer: Callable[[tf.Variable], tf.compat.v1.train.Optimizer]
    weight_decay: float = 0.0
    clip_norm: float = 0.0
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def params(self) -> dict[str, Any]:
        """All settings of the model."""
        return {**self.model.DEFAULTS, **self.settings}


def make_training_input(example: Example) -> tf.data.Dataset:
    """Endless batches from memory."""
    random, count = np.random.default_rng(0), 10 * example.batch_size
    labels = random.integers(0, example.params["num_classes"], size=count, dtype=np.int32)
    features = {example.feature: example.make_feature(random, count)}
    data = tf.data.Dataset.from_tensor_slices((features, labels))
    return data.batch(example.batch_size, drop_remainder=True).cache().repeat().prefetch(4)


def train_ours(example: Example, model_dir: str, report: Report) -> None:
    """Trains until `report(steps of the last call)` returns False."""
    config = est.tpu.RunConfig(
        model_dir=model_dir,
        save_checkpoints_secs=None,
        save_checkpoints_steps=None,
        save_summary_steps=None,
        log_step_count_steps=None,
        tpu_config=est.tpu.TPUConfig(iterations_per_loop=example.loop_steps),
    )
    est.tpu.TPUEstimator(
        example.model.model_fn,
        config=config,
        params={**example.settings, "train_steps": _TRAIN_STEPS},
        train_batch_size=example.batch_size,
    ).train(
        lambda params: make_training_input(example),
        hooks=[ReportHook(report, example.loop_steps)],
    )


class _Variables:
    """Gives `get_variable` the same variable each time, as a `custom_getter` of a scope."""

    def __init__(self) -> None:
        """Starts with none."""
        self._made: dict[str, tf.Variable] = {}

    def __call__(self, getter: Any, name: str, **settings: Any) -> tf.Variable:
        """What a scope calls in place of `getter`."""
        del getter
        if name not in self._made:
            initializer = settings["initializer"] or tf.initializers.GlorotUniform(seed=0)
            with tf.init_scope():
                value = initializer(settings["shape"], dtype=tf.float32)
                self._made[name] = tf.Variable(value, trainable=settings["trainable"], name=name)
        return self._made[name]

    def find_trainable(self) -> list[tf.Variable]:
        """Those that an optimizer updates."""
        return [variable for variable in self._made.values() if variable.trainable]

    def find_kernels(self) -> list[tf.Variable]:
        """Those that are regularized."""
        return [variable for name, variable in self._made.items() if name.endswith("kernel")]


def train_by_hand(example: Example, report: Report) -> None:
    """Trains until `report(steps of the last call)` returns False."""
    made = _Variables()
    step = tf.Variable(0, dtype=tf.int64, trainable=False)
    optimizer = example.make_optimizer(step)

    def run_step(features: dict[str, tf.Tensor], labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            with tf.compat.v1.variable_scope("", custom_getter=made):
                inputs = features[example.feature]
                logits = example.model.build_logits(inputs, example.params, True)
            loss = classification.build_smoothed_loss(labels, logits)
            if example.weight_decay:
                penalties = [tf.nn.l2_loss(kernel) for kernel in made.find_kernels()]
                loss += example.weight_decay * tf.add_n(penalties)
        variables = made.find_trainable()
        gradients = tape.gradient(loss, variables)
        if example.clip_norm:
            gradients, _ = tf.clip_by_global_norm(gradients, example.clip_norm)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        step.assign_add(1)
        return loss

    @tf.function
    def train(iterator: tf.data.Iterator) -> tf.Tensor:
        loss = tf.constant(0.0)
        for _ in tf.range(example.loop_steps):
            loss = run_step(*next(iterator))
        return loss

    run_loops(train, make_training_input(example), example.loop_steps, report)


def _make_rate(build: Callable[..., tf.Tensor], params: dict[str, Any], step: tf.Variable) -> Any:
    """A rate that v1 optimizers call for in each step."""
    return lambda: build(
        step,
        peak=params["learning_rate"],
        warmup_steps=params["warmup_steps"],
        train_steps=_TRAIN_STEPS,
    )


def _make_momentum(step: tf.Variable) -> tf.compat.v1.train.Optimizer:
    rate = _make_rate(schedules.build_cosine, resnet.DEFAULTS, step)
    momentum = resnet.DEFAULTS["momentum"]
    return tf.compat.v1.train.MomentumOptimizer(rate, momentum, use_nesterov=True)


def _make_adamw(step: tf.Variable) -> tf.compat.v1.train.Optimizer:
    params = transformer.DEFAULTS
    return LayerwiseAdamW(
        _make_rate(schedules.build_linear, params, step),
        params["weight_decay"],
        lambda name: transformer.find_rate_factor(name, params),
    )


def _make_images(random: np.random.Generator, count: int, size: int = 32) -> np.ndarray:
    return random.normal(size=[count, size, size, 3]).astype(np.float32)


def _make_texts(random: np.random.Generator, count: int, length: int = 48) -> np.ndarray:
    tokens = random.integers(1, transformer.DEFAULTS["num_tokens"], [count, length], np.int32)
    lengths = random.integers(10, length + 1, [count, 1])
    return np.where(np.arange(length) < lengths, tokens, 0).astype(np.int32)


EXAMPLES = {
    "resnet": Example(
        resnet,
        loop_steps=10,
        batch_size=8,
        feature="image",
        make_feature=_make_images,
        make_optimizer=_make_momentum,
        weight_decay=resnet.DEFAULTS["weight_decay"],
    ),
    "transformer": Example(
        transformer,
        loop_steps=100,
        batch_size=32,
        feature="tokens",
        make_feature=_make_texts,
        make_optimizer=_make_adamw,
        clip_norm=transformer.DEFAULTS["clip_norm"],
    ),
}
# As large as those that are trained on GPUs: ResNet-50, and a Transformer of BERT-base's size.
EXAMPLES["resnet_50"] = dataclasses.replace(
    EXAMPLES["resnet"],
    batch_size=64,
    make_feature=functools.partial(_make_images, size=224),
    settings={"depth": 50, "num_classes": 1000},
)
EXAMPLES["bert_base"] = dataclasses.replace(
    EXAMPLES["transformer"],
    loop_steps=25,
    make_feature=functools.partial(_make_texts, length=128),
    settings={"num_tokens": 30000, "size": 768, "num_layers": 12, "num_heads": 12},
)
