"""The classic distributed script: between-graph, asynchronous, one `Session.run` a step.

As TensorFlow's old example did it: `replica_device_setter` puts the variables on the ps, each
worker has a graph of its own and feeds it, a Supervisor, Adam, a learning rate of 0.01.
"""

import itertools
import json
import os
from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf

from benchmarks.workloads import Workload, compute_loss, make_images_and_labels

_LEARNING_RATE = 0.01


def make_optimizer() -> tf.compat.v1.train.Optimizer:
    """The example's optimizer."""
    return tf.compat.v1.train.AdamOptimizer(_LEARNING_RATE)


def train_classic(workload: Workload, report: Callable[[int], bool]) -> None:
    """Trains until `report(1)` returns False."""
    server, cluster, index = _start_server()
    with tf.Graph().as_default():
        images, labels, *fetches = _build(workload, cluster, index)
        supervisor = tf.compat.v1.train.Supervisor(
            is_chief=index == 0,
            init_op=tf.compat.v1.global_variables_initializer(),
            recovery_wait_secs=1,
        )
        filters = ["/job:ps", f"/job:worker/task:{index}"]
        session_config = tf.compat.v1.ConfigProto(device_filters=filters)
        session = supervisor.prepare_or_wait_for_session(server.target, session_config)
        for batch_images, batch_labels in _repeat_batches(workload):
            session.run(fetches, {images: batch_images, labels: batch_labels})
            if not report(1):
                return


def serve_if_ps() -> None:
    """Serves for ever if this task is a ps."""
    if json.loads(os.environ["TF_CONFIG"])["task"]["type"] == "ps":
        _start_server()[0].join()


def _start_server() -> tuple[tf.distribute.Server, tf.train.ClusterSpec, int]:
    config = json.loads(os.environ["TF_CONFIG"])
    cluster = tf.train.ClusterSpec(config["cluster"])
    role, index = config["task"]["type"], config["task"]["index"]
    return tf.distribute.Server(cluster, job_name=role, task_index=index), cluster, index


def _build(
    workload: Workload, cluster: tf.train.ClusterSpec, index: int
) -> tuple[tf.Tensor, tf.Tensor, tf.Operation, tf.Tensor, tf.Tensor]:
    device = tf.compat.v1.train.replica_device_setter(
        worker_device=f"/job:worker/task:{index}", cluster=cluster
    )
    with tf.compat.v1.device(device):
        global_step = tf.compat.v1.train.get_or_create_global_step()
        shape = [workload.batch_size, *workload.image_shape]
        images = tf.compat.v1.placeholder(tf.float32, shape)
        labels = tf.compat.v1.placeholder(tf.int32, shape[:1])
        logits = workload.forward(_get_variable, images, True)
        loss = compute_loss(logits, labels)
        train_op = make_optimizer().minimize(loss, global_step=global_step)
    return images, labels, train_op, loss, global_step


def _get_variable(name: str, shape: list[int], initializer: Callable) -> tf.Variable:
    return tf.compat.v1.get_variable(name, shape, initializer=initializer)


def _repeat_batches(workload: Workload) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Endless batches that are ready to be fed."""
    images, labels = make_images_and_labels()
    images = (images / np.float32(255) - np.float32(0.5)).reshape(-1, *workload.image_shape)
    size = workload.batch_size
    starts = range(0, len(images) - size + 1, size)
    batches = [(images[start : start + size], labels[start : start + size]) for start in starts]
    return itertools.cycle(batches)
