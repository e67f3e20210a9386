"""Writes what ready-made models of tf.estimator 2.15 do: two files beside it for each form.

Run it from the repository's root, with the Python of an environment that has TensorFlow 2.15:

    python -m tests.canned.reference.make_reference

`models.npz` has each model's variables, before and after training. `models.json` has its
evaluation and its first predictions. `v1_models` are those of `tf.compat.v1.estimator`, and
`experimental` those of `tf.estimator.experimental`. Names on the command line choose files.
"""

from __future__ import annotations

import itertools
import json
import pathlib
import sys
import tempfile
from typing import Any

import numpy as np
import tensorflow as tf

from tests.canned import experimental_cases, model_cases


def record(est: Any, name: str, case: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Trains, evaluates and predicts with one model."""
    with tempfile.TemporaryDirectory() as model_dir:
        config = tf.estimator.RunConfig(tf_random_seed=1, save_summary_steps=None)
        model = case.make(est, model_dir=model_dir, config=config)
        train_input_fn, eval_input_fn = inputs_of(case)
        model.train(train_input_fn, steps=model_cases.NUM_STEPS)
        arrays = {
            f"{name}/{step}/{key}": value
            for step in (0, model_cases.NUM_STEPS)
            for key, value in model_cases.read_variables(model_dir, step).items()
        }
        evaluation = model.evaluate(eval_input_fn)
        predictions = model.predict(eval_input_fn)
        rows = list(itertools.islice(predictions, 3))
    return arrays, {
        "evaluation": {key: float(value) for key, value in evaluation.items()},
        "predictions": [{key: plain(value) for key, value in row.items()} for row in rows],
    }


def inputs_of(case: Any) -> tuple[Any, Any]:
    """Returns the `input_fn`s to train and to evaluate."""
    if isinstance(case, model_cases.Case):
        return model_cases.input_fn(case.label), model_cases.eval_input_fn(case.label)
    return case.input_fn(repeats=True), case.input_fn(repeats=False)


def plain(value: Any) -> Any:
    """Returns an array as lists of numbers or strings."""
    return np.asarray(value).astype(str if value.dtype == object else value.dtype).tolist()


def write(stem: str, est: Any, cases: dict[str, Any]) -> None:
    """Records some cases in the files of this name."""
    arrays: dict[str, np.ndarray] = {}
    results = {}
    for name, case in cases.items():
        values, results[name] = record(est, name, case)
        arrays.update(values)
    folder = pathlib.Path(__file__).parent
    np.savez_compressed(folder / f"{stem}.npz", **arrays)
    (folder / f"{stem}.json").write_text(json.dumps(results, indent=0) + "\n")


FILES = {
    "models": (tf.estimator, model_cases.CASES),
    "v1_models": (tf.compat.v1.estimator, model_cases.V1_CASES),
    "experimental": (tf.estimator, experimental_cases.CASES),
}

if __name__ == "__main__":
    for stem in sys.argv[1:] or FILES:
        write(stem, *FILES[stem])
