"""Trains a wide-and-deep model that says which flights will arrive late, and serves the best one.

    python run_wide_deep.py
    python run_wide_deep.py --train_steps=3000 --learning_rate=0.02

It evaluates during training, exports each model that is the best so far, stops when the loss no
longer improves, and then measures the best export on the flights of other days, as a server would
answer them. Run it again and it continues from its checkpoint. `--help` lists the flags.
"""

import quiet_tensorflow  # noqa: F401  Comes first, to hide what TensorFlow logs in its import.

# isort: split
import dataclasses
import functools
import logging
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf
from absl import app, flags

import estimator as est
from input_pipelines import flights
from models import wide_deep

EVAL_BATCH_SIZE = 500


@dataclasses.dataclass(frozen=True)
class Training:
    """How to train; each field is a flag."""

    model_dir: str = "runs/wide_deep"
    train_steps: int = 2000
    batch_size: int = 128
    learning_rate: float = 0.05
    eval_every_steps: int = 100
    patience_steps: int = 400
    seed: int | None = None


def train(training: Training) -> dict[str, float]:
    """Trains, evaluates on the validation flights and exports; returns the last metrics."""
    config = est.RunConfig(
        model_dir=training.model_dir,
        tf_random_seed=training.seed,
        iterations_per_loop=100,
        save_checkpoints_steps=training.eval_every_steps,
        save_summary_steps=training.eval_every_steps,
        log_step_count_steps=training.eval_every_steps,
    )
    train_input_fn = flights.make_input_fn(
        "train", training.batch_size, training=True, seed=training.seed
    )
    eval_input_fn = flights.make_input_fn("validation", EVAL_BATCH_SIZE)
    with wide_deep.make_classifier(config, learning_rate=training.learning_rate) as classifier:
        stop = est.experimental.stop_if_no_decrease_hook(
            classifier,
            "average_loss",
            max_steps_without_decrease=training.patience_steps,
            run_every_secs=None,
            run_every_steps=training.eval_every_steps,
        )
        best = est.BestExporter(
            "best",
            wide_deep.make_serving_input_receiver_fn(),
            compare_fn=is_better,
            exports_to_keep=1,
        )
        metrics, _ = est.train_and_evaluate(
            classifier,
            est.TrainSpec(train_input_fn, max_steps=training.train_steps, hooks=[stop]),
            est.EvalSpec(eval_input_fn, steps=None, throttle_secs=0, exporters=best),
        )
    return metrics


def is_better(best_eval_result: dict[str, float], current_eval_result: dict[str, float]) -> bool:
    """Compares what early stopping watches: the mean loss of a flight, however they are batched."""
    return current_eval_result["average_loss"] < best_eval_result["average_loss"]


def find_best_export(model_dir: str) -> str:
    """Returns the directory of the newest export, which is the best model's."""
    return str(max(Path(model_dir, "export", "best").glob("[0-9]*"), key=lambda path: path.name))


def predict_with_export(export_dir: str, features: Mapping[str, np.ndarray]) -> np.ndarray:
    """Asks a SavedModel about flights, as a server would: serialized examples in, numbers out.

    Returns:
      The probability that each flight is late, float32 [number of flights].
    """
    model = tf.saved_model.load(export_dir)
    examples = [make_example(flight) for flight in make_rows(features)]
    outputs = model.signatures["predict"](examples=tf.constant(examples))
    return outputs["probabilities"].numpy()[:, 1]


def make_rows(features: Mapping[str, np.ndarray]) -> list[dict[str, object]]:
    """Turns columns into one dict for each flight."""
    rows = zip(*(column.tolist() for column in features.values()), strict=True)
    return [dict(zip(features, row, strict=True)) for row in rows]


def make_example(flight: Mapping[str, object]) -> bytes:
    """Serializes a flight as a `tf.train.Example`."""
    feature = {}
    for name, value in flight.items():
        if isinstance(value, str):
            values = {"bytes_list": tf.train.BytesList(value=[value.encode()])}
        elif isinstance(value, int):
            values = {"int64_list": tf.train.Int64List(value=[value])}
        else:
            values = {"float_list": tf.train.FloatList(value=[value])}
        feature[name] = tf.train.Feature(**values)
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()


def compute_scores(labels: np.ndarray, probabilities: np.ndarray) -> dict[str, float]:
    """Returns the accuracy, and the area under the ROC curve by its definition.

    The latter is how often a late flight has a higher probability than a punctual one.
    """
    late, punctual = probabilities[labels == 1], probabilities[labels == 0]
    wins = late[:, np.newaxis] > punctual
    ties = late[:, np.newaxis] == punctual
    return {
        "accuracy": float(np.mean((probabilities > 0.5) == labels)),
        "AUC": float(np.mean(wins + 0.5 * ties)),
    }


def main(argv: Sequence[str]) -> None:
    """Trains, then prints how good the best export is."""
    if len(argv) > 1:
        raise app.UsageError(f"Unknown arguments: {argv[1:]}. Flags begin with --.")
    tf.get_logger().setLevel(logging.ERROR)
    logging.getLogger("absl").setLevel(logging.WARNING)  # Loading a SavedModel logs a lot.
    names = [field.name for field in dataclasses.fields(Training)]
    training = Training(**{name: flags.FLAGS[name].value for name in names})
    metrics = train(training)
    export_dir = find_best_export(training.model_dir)
    features, labels = flights.read_flights("test")
    scores = compute_scores(labels, predict_with_export(export_dir, features))
    rows = {
        "steps": f"{metrics['global_step']:,}",
        **{name: f"{score:.3f} (on the test flights)" for name, score in scores.items()},
        "if all are on time": f"{np.mean(labels == 0):.3f} of them are right",
        "SavedModel": export_dir,
    }
    print()
    for name, value in rows.items():
        print(f"{name:<20} {value}")


def define_flags(values: flags.FlagValues = flags.FLAGS) -> None:
    """Defines the flags; not on import, for `run_mnist.py` has flags of the same names."""
    default = Training()
    define = functools.partial(flags.DEFINE_integer, lower_bound=1, flag_values=values)
    flags.DEFINE_string(
        "model_dir", default.model_dir, "For checkpoints, events and exports.", flag_values=values
    )
    define("train_steps", default.train_steps, "Train at most until this step.")
    define("batch_size", default.batch_size, "Flights a step.")
    flags.DEFINE_float(
        "learning_rate", default.learning_rate, "Of the deep half.", flag_values=values
    )
    flags.register_validator(
        "learning_rate",
        lambda rate: 0 < rate < math.inf,
        "--learning_rate must be finite and greater than 0.",
        flag_values=values,
    )
    define("eval_every_steps", default.eval_every_steps, "Steps between checks.")
    define("patience_steps", default.patience_steps, "Stop after so many without a better loss.")
    flags.DEFINE_integer(
        "seed", default.seed, "Seed of weights, dropout and order.", flag_values=values
    )


if __name__ == "__main__":
    define_flags()
    app.run(main)
