"""Every optimizer of Keras 3 and of tf-keras with each of its options, and an eager loop of it.

Many cases share a training: each has its own variables, its own loss and its own optimizer.

python keras_optimizers.py MODEL_DIR GROUP...    trains a group of cases, as a task of a cluster
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
import json
import sys
from typing import Any

import keras
import numpy as np
import tensorflow as tf
import tf_keras

import estimator as est

NUM_STEPS = 11  # Loops of 5 and one of 1; no multiple of 3 batches that are accumulated.
BATCH_SIZE, NUM_FEATURES, NUM_OUTPUTS, NUM_ROWS = 8, 3, 2, 5
OVERFLOW_STEP = 6  # The gradients of those that scale their loss are infinite there.

SETTINGS = {
    "loop_1": {},
    "loop_5": {"iterations_per_loop": 5},
    "mirrored_x2": {"strategy": "mirrored", "num_replicas": 2, "iterations_per_loop": 5},
    "workers_x2": {"strategy": "multi_worker_mirrored", "iterations_per_loop": 5},
}
# Not with every option; see CENTRAL.
CENTRAL_STORAGE = {"strategy": "central_storage", "num_replicas": 2, "iterations_per_loop": 5}
WRAPPERS = {"bare": lambda optimizer: optimizer, "cross_shard": est.tpu.CrossShardOptimizer}

_random = np.random.RandomState(4)
FEATURES = {
    "x": _random.randn(NUM_STEPS * BATCH_SIZE, NUM_FEATURES).astype(np.float32),
    "row": _random.randint(NUM_ROWS - 1, size=NUM_STEPS * BATCH_SIZE),
    "factor": np.ones(NUM_STEPS * BATCH_SIZE, np.float32),
}
FEATURES["factor"][OVERFLOW_STEP * BATCH_SIZE] = np.inf
LABELS = _random.randn(NUM_STEPS * BATCH_SIZE, NUM_OUTPUTS).astype(np.float32)
START = {
    "w": _random.randn(NUM_FEATURES, NUM_OUTPUTS).astype(np.float32),
    "b": _random.randn(NUM_OUTPUTS).astype(np.float32),
    "table": _random.randn(NUM_ROWS, NUM_OUTPUTS).astype(np.float32),
}

# --- Rows ----------------------------------------------------------------------------------------

LIBRARIES = {
    "keras": keras.optimizers,
    "tf_keras": tf_keras.optimizers,
    "legacy": tf_keras.optimizers.legacy,
}
WITHOUT_ROW = {"Optimizer": "the base of all", "OptimizerMap": "a part of MultiOptimizer"}
# What is common to many; a row is a rate, and what the optimizer needs besides.
ROWS: dict[tuple[str, str], dict[str, Any]] = {
    ("keras", "Adadelta"): {"rate": 1.0},
    ("keras", "Adafactor"): {"rate": 0.05},
    ("keras", "Adagrad"): {"rate": 0.1},
    ("keras", "Adam"): {"rate": 0.05},
    ("keras", "AdamW"): {"rate": 0.05},
    ("keras", "Adamax"): {"rate": 0.05},
    ("keras", "Ftrl"): {"rate": 0.1},
    ("keras", "Lamb"): {"rate": 0.05},
    ("keras", "Lion"): {"rate": 0.01},
    ("keras", "LossScaleOptimizer"): {"rate": 0.05},
    ("keras", "MultiOptimizer"): {"rate": 0.05},
    ("keras", "Muon"): {"rate": 0.02},
    ("keras", "Nadam"): {"rate": 0.05},
    ("keras", "RMSprop"): {"rate": 0.02, "momentum": 0.5, "centered": True},
    ("keras", "SGD"): {"rate": 0.1, "momentum": 0.9, "nesterov": True},
    ("keras", "ScheduleFreeAdamW"): {"rate": 0.05, "warmup_steps": 4},
    ("tf_keras", "Adadelta"): {"rate": 1.0},
    ("tf_keras", "Adafactor"): {"rate": 0.05},
    ("tf_keras", "Adagrad"): {"rate": 0.1},
    ("tf_keras", "Adam"): {"rate": 0.05, "amsgrad": True},
    ("tf_keras", "AdamW"): {"rate": 0.05},
    ("tf_keras", "Adamax"): {"rate": 0.05},
    ("tf_keras", "Ftrl"): {"rate": 0.1},
    ("tf_keras", "Lion"): {"rate": 0.01},
    ("tf_keras", "Nadam"): {"rate": 0.05},
    ("tf_keras", "RMSprop"): {"rate": 0.02, "momentum": 0.5, "centered": True},
    ("tf_keras", "SGD"): {"rate": 0.1, "momentum": 0.9},
    ("legacy", "Adadelta"): {"rate": 1.0},
    ("legacy", "Adagrad"): {"rate": 0.1},
    ("legacy", "Adam"): {"rate": 0.05, "amsgrad": True},
    ("legacy", "Adamax"): {"rate": 0.05},
    ("legacy", "Ftrl"): {"rate": 0.1},
    ("legacy", "Nadam"): {"rate": 0.05},
    ("legacy", "RMSprop"): {"rate": 0.02, "momentum": 0.5, "centered": True},
    ("legacy", "SGD"): {"rate": 0.1, "momentum": 0.9},
}

if not hasattr(keras.optimizers, "ScheduleFreeAdamW"):  # Python 3.10 has Keras 3.12.
    del ROWS["keras", "MultiOptimizer"], ROWS["keras", "ScheduleFreeAdamW"], ROWS["keras", "Muon"]
    WITHOUT_ROW["Muon"] = "fails in an eager loop, which there is nothing else to compare with"

# --- Options -------------------------------------------------------------------------------------

EMA = {"use_ema": True, "ema_momentum": 0.5}
CLIPPING = {
    "clipnorm": {"clipnorm": 0.1},
    "global_clipnorm": {"global_clipnorm": 0.2},
    "clipvalue": {"clipvalue": 0.05},
}
SHARED = {"plain": {}, **CLIPPING, "schedule": {}, "loss_scale": {}, "sparse": {}}
NEW = {
    "weight_decay": {"weight_decay": 0.1},
    "use_ema": EMA,
    "ema_overwrite_frequency": {**EMA, "ema_overwrite_frequency": 5},
}
OPTIONS: dict[str, dict[str, dict[str, Any]]] = {
    "keras": {
        **SHARED,
        **NEW,
        "loss_scale_factor": {"loss_scale_factor": 8.0},
        "gradient_accumulation_steps": {"gradient_accumulation_steps": 3},
        "scaled_and_accumulated": {"gradient_accumulation_steps": 3},
    },
    "tf_keras": {**SHARED, **NEW},
    "legacy": {**SHARED, "decay": {"decay": 0.1}},
}
LOSS_SCALED = ("loss_scale", "scaled_and_accumulated")
# Options of the base class that a constructor does not take, or that another optimizer has.
ONLY = {
    ("keras", "LossScaleOptimizer"): ("plain", "sparse"),
    ("keras", "MultiOptimizer"): ("plain", "loss_scale_factor", "schedule"),
}
# What does not work in an eager loop either.
NOT_EAGERLY = {("legacy", "Nadam", "schedule")}
# After a step that is skipped it takes its product of momenta once a variable, not once a step.
WRONG_EAGERLY_AFTER_OVERFLOW = {("tf_keras", "Nadam")}


@dataclasses.dataclass(frozen=True, order=True)
class Case:
    library: str
    name: str
    option: str
    wrapper: str = "bare"

    @property
    def key(self):
        return f"{self.library}_{self.name}_{self.option}_{self.wrapper}"

    @property
    def is_loss_scaled(self):
        return self.option in LOSS_SCALED or self.name == "LossScaleOptimizer"

    @property
    def overflows(self):
        is_right = (self.library, self.name) not in WRONG_EAGERLY_AFTER_OVERFLOW
        return self.is_loss_scaled and is_right


# Where replicas share the variables: cases that update in a branch, or assign more than weights.
CENTRAL = [
    Case("keras", "SGD", "gradient_accumulation_steps"),
    Case("keras", "Adam", "scaled_and_accumulated", "cross_shard"),
    Case("keras", "AdamW", "ema_overwrite_frequency"),
    Case("keras", "LossScaleOptimizer", "plain", "cross_shard"),
    Case("keras", "ScheduleFreeAdamW", "plain"),
    Case("tf_keras", "Adam", "schedule"),
    Case("tf_keras", "SGD", "ema_overwrite_frequency", "cross_shard"),
    Case("legacy", "Adam", "schedule"),
]
CENTRAL = [case for case in CENTRAL if (case.library, case.name) in ROWS]


def combinations(library):
    """All (row, option) of a library."""
    return [
        (name, option)
        for (_, name), option in itertools.product(
            [row for row in ROWS if row[0] == library], OPTIONS[library]
        )
        if option in ONLY.get((library, name), OPTIONS[library])
        and (library, name, option) not in NOT_EAGERLY
    ]


def selection(setting):
    """Of all settings together: each optimizer once, with the option taken the fewest times."""
    cases = []
    for library, options in OPTIONS.items():
        names = [name for row, name in ROWS if row == library]
        taken = dict.fromkeys(options, 0)
        for number, name in enumerate(names):
            allowed = [option for row, option in combinations(library) if row == name]
            option = min(allowed, key=taken.get)
            taken[option] += 1
            # Each setting has both wrappers.
            if list(SETTINGS)[number % len(SETTINGS)] == setting:
                wrapper = list(WRAPPERS)[number // len(SETTINGS) % len(WRAPPERS)]
                cases.append(Case(library, name, option, wrapper))
    return cases


def group(name):
    """The cases of a group: "selection SETTING", or "LIBRARY OPTION WRAPPER"."""
    first, *rest = name.split()
    if first == "selection":
        return selection(*rest)
    option, wrapper = rest
    return [Case(first, row, o, wrapper) for row, o in combinations(first) if o == option]


def all_groups():
    return [
        f"{library} {option} {wrapper}"
        for library, options in OPTIONS.items()
        for option in options
        for wrapper in WRAPPERS
    ]


# --- One optimizer -------------------------------------------------------------------------------


def make_optimizer(case):
    rows = dict(ROWS[case.library, case.name])
    options = OPTIONS[case.library][case.option]
    library, rate = LIBRARIES[case.library], rows.pop("rate")
    if case.option == "schedule":
        schedules = keras.optimizers if case.library == "keras" else tf_keras.optimizers
        rate = schedules.schedules.ExponentialDecay(rate, 4, 0.5)
    if case.name == "LossScaleOptimizer":
        inner = library.Adam(rate)
        return library.LossScaleOptimizer(inner, initial_scale=4.0, dynamic_growth_steps=4)
    if case.name == "MultiOptimizer":
        by_path = library.OptimizerMap(library.Adam(rate), {".*b": library.SGD(rate)})
        return library.MultiOptimizer(by_path, **options)
    optimizer = getattr(library, case.name)(rate, **rows, **options)
    if case.option not in LOSS_SCALED:
        return optimizer
    mixed = keras if case.library == "keras" else tf_keras
    return mixed.mixed_precision.LossScaleOptimizer(
        optimizer, initial_scale=4.0, dynamic_growth_steps=4
    )


def loss_of(case, weights, features, labels):
    error = tf.matmul(features["x"], weights["w"]) + weights["b"] - labels
    loss = tf.reduce_mean(tf.square(error))
    if "table" in weights:
        loss += tf.reduce_mean(tf.square(tf.gather(weights["table"], features["row"]) - labels))
    return loss * tf.reduce_max(features["factor"]) if case.overflows else loss


def weight_names(case):
    return ("w", "b", "table") if case.option == "sparse" else ("w", "b")


def scaled_loss(optimizer, loss):
    scale = getattr(optimizer, "scale_loss", None) or getattr(optimizer, "get_scaled_loss", None)
    return scale(loss) if scale else loss


def unscaled(optimizer, gradients):
    unscale = getattr(optimizer, "get_unscaled_gradients", lambda gradients: gradients)
    return unscale(gradients)


def variables_of(optimizer):
    """The TensorFlow variables behind an optimizer's."""
    found = optimizer.variables() if callable(optimizer.variables) else optimizer.variables
    return [v if isinstance(v, tf.Variable) else v.value for v in found]


@functools.cache
def eager_values(case):
    """The weights and all that the optimizer keeps after a plain eager loop."""
    optimizer = make_optimizer(case)
    is_keras = case.library == "keras"
    make = keras.Variable if is_keras else tf.Variable
    weights = {name: make(START[name], name=name) for name in weight_names(case)}
    plain = {name: w.value if is_keras else w for name, w in weights.items()}
    for step in range(NUM_STEPS):
        batch = slice(step * BATCH_SIZE, (step + 1) * BATCH_SIZE)
        features = {name: tf.constant(value[batch]) for name, value in FEATURES.items()}
        with tf.GradientTape() as tape:
            loss = loss_of(case, plain, features, tf.constant(LABELS[batch]))
            loss = scaled_loss(optimizer, loss)
        gradients = unscaled(optimizer, tape.gradient(loss, list(plain.values())))
        optimizer.apply_gradients(zip(gradients, weights.values(), strict=True))
    return [value.numpy() for value in [*plain.values(), *variables_of(optimizer)]]


# --- All of them in one training -----------------------------------------------------------------


def make_model_fn(cases, names):
    """Trains each case; notes in `names` what its variables are called."""

    def model_fn(features, labels, mode):
        total, done = tf.constant(0.0), []
        for case in cases:
            with tf.compat.v1.variable_scope(case.key):
                weights = {
                    name: tf.compat.v1.get_variable(name, initializer=START[name])
                    for name in weight_names(case)
                }
            optimizer = make_optimizer(case)
            loss = loss_of(case, weights, features, labels)
            total += 0.0 if case.overflows else loss
            gradients = tf.gradients(scaled_loss(optimizer, loss), list(weights.values()))
            pairs = zip(unscaled(optimizer, gradients), weights.values(), strict=True)
            applied = WRAPPERS[case.wrapper](optimizer).apply_gradients(list(pairs))
            done += [applied] if isinstance(applied, tf.Operation) else []
            variables = [*weights.values(), *variables_of(optimizer)]
            names[case.key] = [variable.name.partition(":")[0] for variable in variables]
        done.append(tf.compat.v1.train.get_global_step().assign_add(1))
        return est.EstimatorSpec(mode, loss=total, train_op=tf.group(*done))

    return model_fn


def input_fn(input_context):
    """The examples in order; a global batch is the same for any number of workers."""
    data = tf.data.Dataset.from_tensor_slices((FEATURES, LABELS))
    workers, replicas = input_context.num_input_pipelines, input_context.num_replicas_in_sync
    data = data.batch(BATCH_SIZE // replicas, drop_remainder=True)
    return data.shard(workers, input_context.input_pipeline_id)


def train(cases, setting, model_dir):
    """Trains in one graph; returns by case how its variables are called in the checkpoint."""
    names: dict[str, list[str]] = {}
    config = est.RunConfig(
        save_summary_steps=None,
        log_step_count_steps=None,
        resume_input=False,
        **{**SETTINGS, "central_storage_x2": CENTRAL_STORAGE}[setting],
    )
    model = est.Estimator(make_model_fn(cases, names), model_dir, config)
    model.train(input_fn, max_steps=NUM_STEPS)
    return names


def disagreements(cases, names, model_dir):
    """For each case that is not as in an eager loop: which variables, and by how much."""
    reader = tf.train.load_checkpoint(model_dir)
    found = {}
    for case in cases:
        wanted = eager_values(dataclasses.replace(case, wrapper="bare"))
        assert len(names[case.key]) == len(wanted), case
        for name, value in zip(names[case.key], wanted, strict=True):
            got = reader.get_tensor(name)
            if not np.allclose(got, value, rtol=1e-6, atol=1e-6):
                off = float(np.max(np.abs(np.float64(got) - np.float64(value))))
                found.setdefault(case.key, []).append((name, off))
    return found


def optimizers_in(module):
    """The names of the classes that a module of optimizers makes public."""
    public = {name: getattr(module, name) for name in dir(module) if not name.startswith("_")}
    return {name for name, value in public.items() if inspect.isclass(value)}


if __name__ == "__main__":
    for number, one in enumerate(sys.argv[2:]):
        named = train(group(one), "workers_x2", f"{sys.argv[1]}/{number}")
        print(json.dumps({"case": one, "names": named}), flush=True)
