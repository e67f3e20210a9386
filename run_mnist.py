"""Trains, evaluates, predicts with and exports a model of MNIST digits.

    python run_mnist.py --mode=all
    python run_mnist.py --model=mnist_mlp --strategy=mirrored --num_replicas=2

Run it again and it continues from its checkpoint. `--help` lists the flags.

In a cluster, every task runs this program and does its part, which TF_CONFIG or the flags of
`cluster_flags` name:

    estimator-launch --workers=2 --ps=1 --evaluator -- run_mnist.py
"""

import quiet_tensorflow  # noqa: F401  Comes first, to hide what TensorFlow logs in its import.

# isort: split
import itertools
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from absl import app, flags

import cluster_flags
import estimator as est
from input_pipelines import mnist, tfrecord
from models import mnist_cnn, mnist_mlp

FLAGS = flags.FLAGS  # Defined at the end.
MODELS = {"mnist_cnn": mnist_cnn, "mnist_mlp": mnist_mlp}


def make_classifier() -> est.tpu.TPUEstimator:
    """Makes the estimator that the flags describe."""
    cluster = tf.distribute.cluster_resolver.TPUClusterResolver(FLAGS.tpu) if FLAGS.tpu else None
    if tf_config := cluster_flags.make_tf_config():
        cluster = est.parse_tf_config(tf_config)
    config = est.tpu.RunConfig(
        model_dir=FLAGS.model_dir or os.path.join("runs", FLAGS.model),
        tf_random_seed=FLAGS.seed,
        save_checkpoints_steps=FLAGS.save_checkpoints_steps,
        save_summary_steps=FLAGS.save_summary_steps,
        log_step_count_steps=FLAGS.save_summary_steps,
        keep_checkpoint_max=FLAGS.keep_checkpoint_max,
        strategy=FLAGS.strategy,
        num_replicas=FLAGS.num_replicas,
        master=FLAGS.master,
        cluster=cluster,
        tpu_config=est.tpu.TPUConfig(iterations_per_loop=FLAGS.iterations),
    )
    check_cluster(config)
    return est.tpu.TPUEstimator(
        model_fn=MODELS[FLAGS.model].model_fn,
        config=config,
        params=make_params(config),
        use_tpu=FLAGS.use_tpu,
        train_batch_size=FLAGS.batch_size,
        eval_batch_size=FLAGS.eval_batch_size,
        predict_batch_size=FLAGS.eval_batch_size,
    )


def make_params(config: est.RunConfig) -> dict[str, Any]:
    """Makes the `params` of the models."""
    params: dict[str, Any] = {
        "learning_rate": FLAGS.learning_rate,
        "decay_steps": FLAGS.decay_steps,
        "decay_rate": FLAGS.decay_rate,
    }
    if FLAGS.sync_replicas:
        num_workers = config.num_worker_replicas
        params["replicas_to_aggregate"] = FLAGS.replicas_to_aggregate or num_workers
        params["num_workers"] = num_workers
        params["is_chief"] = config.is_chief
    return params


def make_train_input_fn() -> mnist.InputFn:
    """Makes the input to train on."""
    if FLAGS.train_file:
        return tfrecord.make_input_fn(FLAGS.train_file, training=True, seed=FLAGS.seed)
    return mnist.make_input_fn(
        FLAGS.dataset, "train", training=True, seed=FLAGS.seed, data_dir=FLAGS.data_dir
    )


def make_eval_input_fn() -> mnist.InputFn:
    """Makes the input to evaluate and to predict."""
    if FLAGS.eval_file:
        return tfrecord.make_input_fn(FLAGS.eval_file)
    return mnist.make_input_fn(FLAGS.dataset, "test", data_dir=FLAGS.data_dir)


def serving_input_receiver_fn() -> est.export.ServingInputReceiver:
    """Takes raw images, uint8 [batch, 28, 28, 1], and scales them as in training."""
    images = tf.compat.v1.placeholder(tf.uint8, [None, *mnist.IMAGE_SHAPE], name="image")
    return est.export.ServingInputReceiver(
        features={"image": mnist.scale_images(images)}, receiver_tensors={"image": images}
    )


def train(classifier: est.tpu.TPUEstimator) -> dict[str, str]:
    """Trains up to --train_steps, from the newest checkpoint if there is one."""
    speed = SpeedHook()
    classifier.train(make_train_input_fn(), hooks=[speed], max_steps=FLAGS.train_steps)
    if speed.steps_per_sec is None:
        return {}
    return {"examples/s": f"{speed.steps_per_sec * FLAGS.batch_size:,.0f}"}


def evaluate(classifier: est.tpu.TPUEstimator) -> dict[str, str]:
    """Evaluates every test digit, and writes a picture of the misclassified ones."""
    metrics = classifier.evaluate(make_eval_input_fn(), steps=None)
    images = [image for image, label, digit in predict_labelled(classifier) if digit != label]
    write_mistakes(classifier.eval_dir(), images, metrics["global_step"])
    is_sample = FLAGS.dataset == "mnist_5k" and not FLAGS.eval_file
    remark = " (on mnist_5k's own test digits, not MNIST's official ones)" if is_sample else ""
    return {"accuracy": f"{metrics['accuracy']:.4f}{remark}", "loss": f"{metrics['loss']:.4f}"}


def predict(classifier: est.tpu.TPUEstimator) -> dict[str, str]:
    """Predicts the first test digits."""
    shown = itertools.islice(predict_labelled(classifier), NUM_PREDICTIONS_SHOWN)
    _, labels, digits = zip(*shown, strict=True)
    return {"digits": " ".join(map(str, labels)), "predicted": " ".join(map(str, digits))}


def export(classifier: est.tpu.TPUEstimator) -> dict[str, str]:
    """Exports a SavedModel that takes raw images."""
    export_dir = FLAGS.export_dir or os.path.join(classifier.model_dir, "export")
    path = classifier.export_saved_model(export_dir, serving_input_receiver_fn)
    return {"SavedModel": os.fsdecode(path)}


def train_and_evaluate(classifier: est.tpu.TPUEstimator) -> dict[str, str]:
    """Does this task's part of `train_and_evaluate` in a cluster."""
    exporter = est.FinalExporter("digits", serving_input_receiver_fn)
    metrics, _ = est.train_and_evaluate(
        classifier,
        est.TrainSpec(make_train_input_fn(), max_steps=FLAGS.train_steps),
        est.EvalSpec(
            make_eval_input_fn(),
            steps=None,
            exporters=exporter,
            start_delay_secs=0,
            throttle_secs=0,
        ),
    )
    return {"accuracy": f"{metrics['accuracy']:.4f}"} if metrics else {}


Verb = Callable[[est.tpu.TPUEstimator], dict[str, str]]
VERBS: dict[str, Verb] = {"train": train, "eval": evaluate, "predict": predict, "export": export}


def choose_verbs(config: est.RunConfig) -> list[Verb]:
    """Returns the verbs that this task runs; a ps serves as long as the others train."""
    if is_in_cluster(config) and (FLAGS.mode == "all" or config.task_type == "ps"):
        return [train_and_evaluate]
    return list(VERBS.values()) if FLAGS.mode == "all" else [VERBS[FLAGS.mode]]


# --- Clusters -------------------------------------------------------------------------------------

CLUSTER_MODES = ("train", "all")


def is_in_cluster(config: est.RunConfig) -> bool:
    """Whether this process is one of several tasks."""
    num_tasks = config.num_worker_replicas + config.num_ps_replicas
    return num_tasks > 1 or config.task_type == "evaluator"


def check_cluster(config: est.RunConfig) -> None:
    """Raises a UsageError unless the flags fit the cluster, and TF_CONFIG the flags."""
    if FLAGS.job_name and os.environ.get("TF_CONFIG"):
        raise app.UsageError("--job_name and TF_CONFIG exclude each other: both say who this is.")
    if FLAGS.sync_replicas and config.num_ps_replicas == 0 and config.task_type != "evaluator":
        raise app.UsageError("--sync_replicas needs a cluster with parameter servers.")
    if is_in_cluster(config) and FLAGS.export_dir:
        raise app.UsageError(
            "--export_dir is not for a cluster, which exports to MODEL_DIR/export."
        )
    if is_in_cluster(config) and FLAGS.mode not in CLUSTER_MODES:
        raise app.UsageError(
            f"--mode={FLAGS.mode} is not for a cluster, which takes {' and '.join(CLUSTER_MODES)}. "
            "Run it on one machine, without TF_CONFIG."
        )
    if config.task_type == "evaluator" and FLAGS.mode == "train":
        raise app.UsageError("--mode=train leaves an evaluator nothing to do: pass --mode=all.")


# --- Reports --------------------------------------------------------------------------------------

NUM_PREDICTIONS_SHOWN = 10
MISTAKES_GRID = (8, 8)


class SpeedHook(tf.compat.v1.train.SessionRunHook):
    """Measures steps a second, excluding the time to build the graph."""

    steps_per_sec: float | None = None  # None until the first session call ends.

    def after_create_session(self, session: tf.compat.v1.Session, coord: Any) -> None:
        """Starts the clock."""
        del coord
        self._global_step = tf.compat.v1.train.get_global_step()
        self._start = time.perf_counter(), session.run(self._global_step)

    def before_run(self, run_context: Any) -> tf.compat.v1.train.SessionRunArgs:
        """Asks for the global step."""
        del run_context
        return tf.compat.v1.train.SessionRunArgs(self._global_step)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Reads the clock."""
        del run_context
        start_secs, start_step = self._start
        num_steps = run_values.results - start_step
        self.steps_per_sec = num_steps / (time.perf_counter() - start_secs)


def predict_labelled(
    classifier: est.tpu.TPUEstimator,
) -> Iterator[tuple[np.ndarray, int, int]]:
    """Yields (image, label, predicted digit) for each test digit."""
    input_fn = make_eval_input_fn()
    examples = input_fn({"batch_size": FLAGS.eval_batch_size}).unbatch().as_numpy_iterator()
    for (features, label), prediction in zip(examples, classifier.predict(input_fn), strict=True):
        yield features["image"], int(label), int(prediction["classes"])


def write_mistakes(log_dir: str, images: Sequence[np.ndarray], step: int) -> None:
    """Writes a grid of the first of these images, [28, 28, 1] in [-0.5, 0.5], for TensorBoard."""
    num_rows, num_columns = MISTAKES_GRID
    tiles = np.full([num_rows * num_columns, *mnist.IMAGE_SHAPE], -0.5, np.float32)
    for tile, image in zip(tiles, images, strict=False):
        tile[:] = image
    tiles = np.pad(tiles + 0.5, [(0, 0), (1, 1), (1, 1), (0, 0)], constant_values=0.5)
    height, width, _ = tiles.shape[1:]
    rows = tiles.reshape(num_rows, num_columns, height, width).transpose(0, 2, 1, 3)
    grid = rows.reshape(1, num_rows * height, num_columns * width, 1)
    with tf.summary.create_file_writer(log_dir).as_default():
        tf.summary.image("misclassified", grid, step=step)


def print_report(classifier: est.tpu.TPUEstimator, results: dict[str, str]) -> None:
    """Prints the results, where they are, and how to look at them."""
    rows = {
        "steps": f"{int(classifier.get_variable_value('global_step')):,}",
        **results,
        "checkpoint": classifier.latest_checkpoint(),
        "events": f"{classifier.model_dir}, {classifier.eval_dir()}",
        "TensorBoard": f"{sys.executable} -m tensorboard.main --logdir {classifier.model_dir}",
    }
    print()
    for name, value in rows.items():
        print(f"{name:<12} {value}")


# --- Flags ----------------------------------------------------------------------------------------

flags.adopt_module_key_flags(cluster_flags)
flags.DEFINE_enum("mode", "all", [*VERBS, "all"], "What to do; all does everything, in this order.")

flags.DEFINE_enum("model", "mnist_cnn", list(MODELS), "The model.")
flags.DEFINE_integer("train_steps", 2000, "Train until this global step.", lower_bound=1)
flags.DEFINE_integer("batch_size", 64, "Examples a step, over all replicas.", lower_bound=1)
flags.DEFINE_integer("eval_batch_size", 200, "The same, to evaluate and predict.", lower_bound=1)
flags.DEFINE_float("learning_rate", 0.001, "Learning rate at the start.")
flags.DEFINE_integer("decay_steps", 500, "Steps over which it decays once.", lower_bound=1)
flags.DEFINE_float("decay_rate", 0.7, "Factor that it decays by.", 0.0, 1.0)
flags.DEFINE_integer("seed", None, "Seed of weights, dropout and order; none if not given.")

flags.DEFINE_enum("dataset", "mnist_5k", mnist.DATASETS, "The data set; mnist is downloaded.")
flags.DEFINE_string("data_dir", mnist.DEFAULT_DATA_DIR, "Where TFDS keeps its data sets.")
flags.DEFINE_string("train_file", None, "TFRecord files to train on, instead; wildcards work.")
flags.DEFINE_string("eval_file", None, "TFRecord files to evaluate and predict, instead.")

flags.DEFINE_string("model_dir", None, "For checkpoints and events. Default: runs/MODEL.")
flags.DEFINE_string("export_dir", None, "For SavedModels. Default: MODEL_DIR/export.")
flags.DEFINE_integer("iterations", 100, "Steps in one session call.", lower_bound=1)
flags.DEFINE_integer("save_checkpoints_steps", 500, "Steps between checkpoints.", lower_bound=1)
flags.DEFINE_integer("save_summary_steps", 100, "Steps between summaries.", lower_bound=1)
flags.DEFINE_integer("keep_checkpoint_max", 5, "Checkpoints to keep; 0 keeps all.", lower_bound=0)

flags.DEFINE_string("strategy", None, "Its name, such as mirrored. Default: none.")
flags.DEFINE_integer("num_replicas", None, "Replicas of the strategy.", lower_bound=1)
flags.DEFINE_boolean("use_tpu", False, "Run on a TPU.")
flags.DEFINE_string("tpu", None, "Name or address of the TPU.")
flags.DEFINE_string("master", None, "Address of the TensorFlow server to run on.")

flags.register_validator(
    "learning_rate",
    lambda rate: 0 < rate < float("inf"),
    "--learning_rate must be finite and greater than 0.",
)
flags.register_multi_flags_validator(
    ["tpu", "use_tpu", "master"],
    lambda values: not values["tpu"] or (values["use_tpu"] and not values["master"]),
    "--tpu needs --use_tpu, and takes the place of --master.",
)
flags.register_multi_flags_validator(
    ["job_name", "tpu", "use_tpu", "master"],
    lambda values: (
        not (values["job_name"] and (values["tpu"] or values["use_tpu"] or values["master"]))
    ),
    "--job_name excludes --tpu, --use_tpu and --master: a cluster has its own servers.",
)


def main(argv: Sequence[str]) -> None:
    """Runs the verbs that --mode names, and prints a report."""
    if len(argv) > 1:
        raise app.UsageError(f"Unknown arguments: {argv[1:]}. Flags begin with --.")
    logging.getLogger().setLevel(logging.WARNING)  # TFDS logs a lot.
    tf.get_logger().setLevel(logging.ERROR)
    with make_classifier() as classifier:
        config = classifier.config
        cluster_flags.choose_gpu(config.task_id)
        results: dict[str, str] = {}
        for verb in choose_verbs(config):
            results |= verb(classifier)
        if config.is_chief or config.task_type == "evaluator":
            print_report(classifier, results)


if __name__ == "__main__":
    app.run(main)
