"""The limit: the same ops in a `tf.function` written by hand, with nothing around them."""

from collections.abc import Callable, Sequence

import tensorflow as tf

from benchmarks.workloads import (
    LEARNING_RATE,
    Workload,
    compute_loss,
    compute_predictions,
    make_training_input,
)


class HandWrittenModel:
    """Variables, and the functions that train and use them."""

    def __init__(self, workload: Workload) -> None:
        """Creates the variables."""
        self.workload = workload
        self.variables: dict[str, tf.Variable] = {}
        self.global_step = tf.Variable(0, dtype=tf.int64, trainable=False)
        self.forward(tf.zeros([1, *workload.image_shape]), is_training=False)

    def forward(self, images: tf.Tensor, is_training: bool) -> tf.Tensor:
        """The logits."""
        return self.workload.forward(self._get_variable, images, is_training)

    def _get_variable(self, name: str, shape: Sequence[int], initializer: Callable) -> tf.Variable:
        if name not in self.variables:
            self.variables[name] = tf.Variable(initializer(shape), name=name)
        return self.variables[name]

    def make_train_function(self, num_steps: int) -> Callable[..., tf.Tensor]:
        """`iterator` -> the loss of the last of `num_steps` steps."""

        @tf.function
        def train(iterator: tf.data.Iterator) -> tf.Tensor:
            loss = tf.constant(0.0)
            for _ in tf.range(num_steps):
                loss = self._run_step(*next(iterator))
            return loss

        return train

    def _run_step(self, images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        variables = list(self.variables.values())
        with tf.GradientTape() as tape:
            loss = compute_loss(self.forward(images, is_training=True), labels)
        for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
            tf.raw_ops.ResourceApplyGradientDescent(
                var=variable.handle, alpha=LEARNING_RATE, delta=gradient
            )
        self.global_step.assign_add(1)
        return loss

    def make_predict_function(self) -> Callable[[tf.Tensor], dict[str, tf.Tensor]]:
        """`images` -> predictions, for one batch."""

        @tf.function
        def predict(images: tf.Tensor) -> dict[str, tf.Tensor]:
            return compute_predictions(self.forward(images, is_training=False))

        return predict

    def make_evaluate_function(self) -> Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, ...]]:
        """`(images, labels)` -> loss and number of right answers, for one batch."""

        @tf.function
        def evaluate(images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, ...]:
            logits = self.forward(images, is_training=False)
            is_right = tf.equal(tf.argmax(logits, axis=-1, output_type=labels.dtype), labels)
            return compute_loss(logits, labels), tf.math.count_nonzero(is_right)

        return evaluate


def train_hand_written(
    workload: Workload, loop_steps: int, report: Callable[[int], bool]
) -> HandWrittenModel:
    """Trains until `report(steps of the last call)` returns False."""
    model = HandWrittenModel(workload)
    train = model.make_train_function(loop_steps)
    iterator = iter(make_training_input(workload))
    while True:
        train(iterator).numpy()
        if not report(loop_steps):
            return model
