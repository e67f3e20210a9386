"""Writes `tests/data/tf_estimator_2_15`: what tf.estimator of TensorFlow 2.15 leaves in model_dirs.

Run it from the repository's root, with the Python of an environment that has TensorFlow 2.15:

    python -m tests.data.make_tf_estimator_2_15

A folder is a model_dir at step 10, without event files, graph.pbtxt and .meta files, which are
large and which nothing reads. `<folder>.json` beside it has what 2.15 made of it: its evaluation,
its predictions, and every variable after 5 more steps.
"""

from __future__ import annotations

import json
import pathlib
import shutil
import tempfile
from typing import Any

import numpy as np
import tensorflow as tf

from tests.data import old_programs
from tests.data.old_programs import HERE, V1

_NOT_KEPT = ("**/events.out.tfevents.*", "graph.pbtxt", "*.meta")


def run_program(name: str, directory: str) -> dict[str, Any]:
    """Trains a program into `directory`; returns what 2.15 makes of what is there then."""
    program = old_programs.PROGRAMS[name]
    est = V1.estimator if program.is_tpu else tf.estimator
    config: dict[str, Any] = {"tf_random_seed": 1, "keep_checkpoint_max": 1}
    if program.is_mirrored:
        config["train_distribute"] = tf.distribute.MirroredStrategy(["/cpu:0"])
    trained = old_programs.make_estimator(est, name, directory, **config)
    trained.train(program.input_fn, steps=old_programs.NUM_STEPS)
    results = {
        # TPUEstimator asks for the steps.
        "evaluation": trained.evaluate(program.input_fn, steps=old_programs.NUM_EVAL_STEPS),
        "predictions": list(trained.predict(program.input_fn)),
    }
    with tempfile.TemporaryDirectory() as copy:
        shutil.copytree(directory, copy, dirs_exist_ok=True)
        more = old_programs.make_estimator(est, name, copy, **config)
        more.train(program.input_fn, steps=old_programs.MORE_STEPS)
        results["variables"] = read_variables(copy)
    return results


def run_canned(directory: str) -> dict[str, Any]:
    """A DNNClassifier with an embedding of the old vocabulary."""
    words = tf.feature_column.categorical_column_with_vocabulary_file(
        "word", str(HERE / "old_vocabulary.txt"), len(old_programs.OLD_VOCABULARY)
    )
    columns = [
        tf.feature_column.embedding_column(words, dimension=2),
        tf.feature_column.numeric_column("x", [3]),
    ]
    trained = tf.estimator.DNNClassifier(
        hidden_units=[4],
        feature_columns=columns,
        model_dir=directory,
        n_classes=len(old_programs.OLD_VOCABULARY),
        config=tf.estimator.RunConfig(tf_random_seed=1, keep_checkpoint_max=1),
    )
    trained.train(lambda: old_programs.canned_input_fn(True), steps=old_programs.NUM_STEPS)
    return {
        "evaluation": trained.evaluate(old_programs.canned_input_fn),
        "predictions": list(trained.predict(old_programs.canned_input_fn)),
    }


def run_warm_start(checkpoint: str) -> dict[str, Any]:
    """What 2.15 warm-starts variables at whose vocabulary is another now."""
    with tempfile.TemporaryDirectory() as directory:
        settings = old_programs.make_warm_start_settings(tf.estimator, checkpoint)
        model_fn = old_programs.make_warm_started_model_fn(tf.estimator)
        started = tf.estimator.Estimator(model_fn, directory, warm_start_from=settings)
        started.train(old_programs.plain_input_fn, steps=1)
        return {"variables": read_variables(directory)}


def read_variables(model_dir: str) -> dict[str, np.ndarray]:
    reader = tf.train.load_checkpoint(model_dir)
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def write(name: str, results: dict[str, Any]) -> None:
    def plain(value: Any) -> Any:
        """Of what JSON does not know: arrays, NumPy's scalars and bytes."""
        return value.decode() if isinstance(value, bytes) else value.tolist()

    text = json.dumps(results, indent=1, sort_keys=True, default=plain)
    (HERE / f"{name}.json").write_text(text + "\n")


def main() -> None:
    assert tf.__version__.startswith("2.15."), tf.__version__
    shutil.rmtree(HERE, ignore_errors=True)
    HERE.mkdir()
    for kind in ("old", "new"):
        entries = getattr(old_programs, f"{kind.upper()}_VOCABULARY")
        (HERE / f"{kind}_vocabulary.txt").write_text("".join(f"{e}\n" for e in entries))
    for name in old_programs.PROGRAMS:
        write(name, run_program(name, str(HERE / name)))
    write("canned", run_canned(str(HERE / "canned")))
    write("warm_start", run_warm_start(str(HERE / "canned")))
    for directory in filter(pathlib.Path.is_dir, HERE.iterdir()):
        for pattern in _NOT_KEPT:
            for path in directory.glob(pattern):
                path.unlink()
        shutil.rmtree(directory / "eval", ignore_errors=True)


if __name__ == "__main__":
    main()
