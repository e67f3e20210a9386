"""A random program as plain data: what is drawn, printed when it fails, and typed in to run again.

`Program(...)` as printed is a Python expression; fields at their defaults are left out.
"""

from __future__ import annotations

import dataclasses

LAYERS = (
    "v1_dense",
    "keras_dense",
    "batch_norm",
    "layer_norm",
    "dropout",
    "keras_gru",
    "keras_rnn",
    "counting",
    "counting_in_cond",
    "counting_in_while",
    "counting_in_function",
    "scaled_in_cond",
    "dense_in_while",
    "dense_in_function",
)
EMBEDDINGS = (None, "v1", "keras")
LOSSES = ("mean", "sum", "v1_weighted", "v1_sum", "k_mean", "k_weighted", "per_example", "shape_1")
METRICS = ("v1_mean", "v1_weighted", "v1_accuracy", "v1_mse", "k_mean", "k_accuracy", "k_mse")
STRATEGIES = {
    None: 1,
    "one_device": 1,
    "mirrored_x2": 2,
    "mirrored_x3": 3,
    "central_storage_x2": 2,
}


@dataclasses.dataclass(frozen=True, repr=False)
class Plain:
    """Prints as the shortest call that makes it."""

    def replace(self, **changes):
        return dataclasses.replace(self, **changes)

    def __repr__(self):
        shown = [
            f"{field.name}={getattr(self, field.name)!r}"
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != field.default
        ]
        return f"{type(self).__name__}({', '.join(shown)})"

    def _repr_pretty_(self, printer, cycle):
        printer.text(repr(self))  # As Hypothesis prints it.


@dataclasses.dataclass(frozen=True, repr=False)
class Layer(Plain):
    """One of LAYERS."""

    kind: str = "v1_dense"
    units: int = 2
    activation: str = "tanh"


@dataclasses.dataclass(frozen=True, repr=False)
class Counter(Plain):
    """A plain v1 variable, not trained, that each batch adds to.

    Attributes:
      amount: what a replica adds: "one", "rows" of its batch, or the "mean" of its features.
      wired: what runs it: "train_op", "update_ops" (the collection), "loss" (which also reads it),
        or, with one replica, a "cond", a "while" or a "function" that the train_op runs.
      aggregation: of several replicas: "first", "sum" or "mean"; "sum_on_read" and "mean_on_read"
        are of variables of which each replica has its own.
    """

    amount: str = "one"
    wired: str = "train_op"
    aggregation: str = "first"


@dataclasses.dataclass(frozen=True, repr=False)
class Optimizer(Plain):
    """Of TensorFlow 1 or Keras 3, by the name of its class without "Optimizer".

    Attributes:
      api: "v1" or "keras".
      name: of the class.
      rate: the learning rate, or its first value.
      schedule: None, "exponential" or "piecewise".
      options: further arguments.
    """

    api: str = "v1"
    name: str = "GradientDescent"
    rate: float = 0.1
    schedule: str | None = None
    options: tuple[tuple[str, float | bool], ...] = ()


@dataclasses.dataclass(frozen=True, repr=False)
class CrossShard(Plain):
    """Arguments of a CrossShardOptimizer."""

    reduction: str = "mean"
    accumulate_steps: int = 1
    clip_norm: float | None = None


@dataclasses.dataclass(frozen=True, repr=False)
class Input(Plain):
    """A dataset of the first examples.

    Attributes:
      num_examples: at most data.NUM_EXAMPLES.
      batch_size: of a replica.
      epochs: None never ends.
      drop_remainder: whether a last batch that is smaller is left out.
      shuffle_seed: None does not shuffle.
      prefetch: how many batches.
      source: "slices", or "numpy" for numpy_input_fn, which neither drops nor shuffles here.
    """

    num_examples: int = 24
    batch_size: int = 3
    epochs: int | None = 1
    drop_remainder: bool = False
    shuffle_seed: int | None = None
    prefetch: int = 0
    source: str = "slices"


@dataclasses.dataclass(frozen=True, repr=False)
class Part(Plain):
    """One call of `train`.

    Attributes:
      steps: as for `train`, like `max_steps`.
      is_new_object: whether a new Estimator makes the call.
    """

    steps: int | None = None
    max_steps: int | None = None
    is_new_object: bool = True
    strategy: str | None = None
    loop: int | str = 1
    save_every: int | None = None
    summary_every: int | None = None
    log_every: int | None = None
    keep: int | None = 5
    resume_input: bool = True


@dataclasses.dataclass(frozen=True, repr=False)
class Check(Plain):
    """What is done after training.

    Attributes:
      batch_size: of a replica.
      steps: of `evaluate`.
      metrics: some of METRICS.
      of_oldest: whether the oldest checkpoint that is kept is named, not the newest.
      predicts: whether `predict` is called, too.
      strategy: of the evaluation.
    """

    num_examples: int = 7
    batch_size: int = 3
    steps: int | None = None
    metrics: tuple[str, ...] = ()
    of_oldest: bool = False
    predicts: bool = False
    strategy: str | None = None


@dataclasses.dataclass(frozen=True, repr=False)
class Program(Plain):
    """A model, its input, the calls of `train`, and what is checked afterwards."""

    layers: tuple[Layer, ...] = ()
    embedding: str | None = None
    output: str = "v1_dense"
    loss: str = "mean"
    l2: float = 0.0
    average_decay: float | None = None
    counters: tuple[Counter, ...] = ()
    optimizer: Optimizer = Optimizer()
    cross: CrossShard | None = None
    input: Input = Input()
    parts: tuple[Part, ...] = (Part(steps=2),)
    check: Check | None = None

    @property
    def window(self):
        """How many batches make a step."""
        return 1 if self.cross is None else self.cross.accumulate_steps
