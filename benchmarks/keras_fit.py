"""The same models in Keras 3, trained by one endless `fit`.

One `fit` call lasts for the whole benchmark and a callback takes the time between batches, so
Keras pays its set-up, its tracing and its epoch ends outside of what is measured, as we do.
`jit_compile=False`: Keras' own choice on a CPU, XLA, is the slower one here.
"""

from collections.abc import Callable

import keras

from benchmarks.workloads import (
    DROPOUT_RATE,
    LEARNING_RATE,
    NUM_CLASSES,
    Workload,
    make_training_input,
)

ENDLESS = 10**9


def make_keras_model(workload: Workload) -> keras.Model:
    """The model, not compiled."""
    layers = [keras.Input(workload.image_shape)]
    if workload.name == "mlp":
        layers.append(keras.layers.Dense(100, activation="relu"))
    if workload.name == "cnn":
        for filters in (32, 64):
            layers.append(keras.layers.Conv2D(filters, 5, padding="same", activation="relu"))
            layers.append(keras.layers.MaxPooling2D(2))
        layers.append(keras.layers.Flatten())
        layers.append(keras.layers.Dense(128, activation="relu"))
        layers.append(keras.layers.Dropout(DROPOUT_RATE))
    layers.append(keras.layers.Dense(NUM_CLASSES))
    return keras.Sequential(layers)


def compile_keras_model(model: keras.Model, steps_per_execution: int) -> None:
    """Gives it the optimizer and the loss that the other contenders have."""
    model.compile(
        optimizer=keras.optimizers.SGD(LEARNING_RATE),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        steps_per_execution=steps_per_execution,
        jit_compile=False,
    )


class ReportCallback(keras.callbacks.Callback):
    """Calls `report(steps)` after each execution, and stops when it returns False."""

    def __init__(self, report: Callable[[int], bool], steps_per_execution: int) -> None:
        """`report` gets the number of steps since the last call."""
        super().__init__()
        self._report = report
        self._steps = steps_per_execution

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        """Runs in the thread of `fit`, once per execution (not per batch)."""
        del batch, logs
        if not self._report(self._steps):
            self.model.stop_training = True


def train_keras(
    workload: Workload, steps_per_execution: int, report: Callable[[int], bool]
) -> None:
    """Trains until `report(steps of the last call)` returns False."""
    model = make_keras_model(workload)
    compile_keras_model(model, steps_per_execution)
    fit_keras(model, workload, steps_per_execution, report)


def fit_keras(
    model: keras.Model,
    workload: Workload,
    steps_per_execution: int,
    report: Callable[[int], bool],
) -> None:
    """`fit` on a compiled model until `report` returns False."""
    model.fit(
        make_training_input(workload),
        steps_per_epoch=ENDLESS,
        callbacks=[ReportCallback(report, steps_per_execution)],
        verbose=0,
    )
