"""Writes what ready-made models of tf.estimator 2.15 do: two files beside it for each form.

Run it from the repository's root, with the Python of an environment that has TensorFlow 2.15:

    python -m tests.canned.reference.make_reference

`models.npz` has each model's variables, before and after training. `models.json` has its
evaluation and its first predictions. `v1_models` are those of `tf.compat.v1.estimator`.
"""

from __future__ import annotations

import itertools
import json
import pathlib
import tempfile
from typing import Any

import numpy as np
import tensorflow as tf

from tests.canned import model_cases


def record(est: Any, name: str, case: model_cases.Case) -> tuple[dict[str, Any], dict[str, Any]]:
    """Trains, evaluates and predicts with one model."""
    with tempfile.TemporaryDirectory() as model_dir:
        config = tf.estimator.RunConfig(tf_random_seed=1, save_summary_steps=None)
        model = case.make(est, model_dir=model_dir, config=config)
        model.train(model_cases.input_fn(case.label), steps=model_cases.NUM_STEPS)
        arrays = {
            f"{name}/{step}/{key}": value
            for step in (0, model_cases.NUM_STEPS)
            for key, value in model_cases.read_variables(model_dir, step).items()
        }
        evaluation = model.evaluate(model_cases.eval_input_fn(case.label))
        predictions = model.predict(model_cases.eval_input_fn(case.label))
        rows = list(itertools.islice(predictions, 3))
    return arrays, {
        "evaluation": {key: float(value) for key, value in evaluation.items()},
        "predictions": [{key: plain(value) for key, value in row.items()} for row in rows],
    }


def plain(value: Any) -> Any:
    """Returns an array as lists of numbers or strings."""
    return np.asarray(value).astype(str if value.dtype == object else value.dtype).tolist()


def write(stem: str, est: Any, cases: dict[str, model_cases.Case]) -> None:
    """Records some cases in the files of this name."""
    arrays: dict[str, np.ndarray] = {}
    results = {}
    for name, case in cases.items():
        values, results[name] = record(est, name, case)
        arrays.update(values)
    folder = pathlib.Path(__file__).parent
    np.savez_compressed(folder / f"{stem}.npz", **arrays)
    (folder / f"{stem}.json").write_text(json.dumps(results, indent=0) + "\n")


if __name__ == "__main__":
    write("models", tf.estimator, model_cases.CASES)
    write("v1_models", tf.compat.v1.estimator, model_cases.V1_CASES)
