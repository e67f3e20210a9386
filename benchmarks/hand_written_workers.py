"""The limit for several workers: a `tf.function` loop under MultiWorkerMirroredStrategy."""

from collections.abc import Callable

import tensorflow as tf

from benchmarks.hand_written import HandWrittenModel
from benchmarks.workloads import LEARNING_RATE, Workload, compute_loss, make_training_input


class _WorkersModel(HandWrittenModel):
    """Gradients are averaged over the workers, and applied to each one's copy."""

    def _run_step(self, images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        variables = list(self.variables.values())
        with tf.GradientTape() as tape:
            loss = compute_loss(self.forward(images, is_training=True), labels)
        context = tf.distribute.get_replica_context()
        gradients = context.all_reduce(tf.distribute.ReduceOp.MEAN, tape.gradient(loss, variables))
        context.merge_call(self._apply, args=(variables, gradients))
        return loss

    def _apply(self, strategy: tf.distribute.Strategy, variables: list, gradients: list) -> None:
        for variable, gradient in zip(variables, gradients, strict=True):
            strategy.extended.update(
                variable, lambda v, g: v.assign_sub(LEARNING_RATE * g), args=(gradient,)
            )
        strategy.extended.update(self.global_step, lambda step: step.assign_add(1))


def train_hand_written_workers(
    workload: Workload,
    loop_steps: int,
    num_workers: int,
    report: Callable[[int], bool],
    has_distributed_input: bool,
) -> None:
    """Trains until `report(steps of the last call)` returns False.

    With one replica a worker its input may be a plain iterator, which ends well only if all workers
    have equally many batches, or the distributed one that TensorFlow's guides show: its workers ask
    each other in each step whether there are batches, as ours do, and it takes longer.
    """
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    batch_size = workload.batch_size // num_workers
    with strategy.scope():
        model = _WorkersModel(workload)

    @tf.function
    def train(iterator: tf.data.Iterator) -> tf.Tensor:
        loss = tf.constant(0.0)
        for _ in tf.range(loop_steps):
            loss = strategy.run(model._run_step, args=next(iterator))  # noqa: SLF001
        return loss

    dataset = make_training_input(workload, batch_size)
    if has_distributed_input:
        dataset = strategy.distribute_datasets_from_function(lambda context: dataset)
    iterator = iter(dataset)
    while True:
        train(iterator).numpy()
        if not report(loop_steps):
            return
