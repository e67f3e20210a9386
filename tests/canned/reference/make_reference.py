"""Writes what ready-made models of tf.estimator 2.15 do: `models.npz` and `models.json` beside it.

Run it from the repository's root, with the Python of an environment that has TensorFlow 2.15:

    python -m tests.canned.reference.make_reference

`models.npz` has each model's variables, before and after training. `models.json` has its
evaluation and its predictions of one batch.
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


def record(name: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Trains, evaluates and predicts with one model."""
    case = model_cases.CASES[name]
    with tempfile.TemporaryDirectory() as model_dir:
        config = tf.estimator.RunConfig(tf_random_seed=1, save_summary_steps=None)
        model = case.make(tf.estimator, model_dir=model_dir, config=config)
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


def main() -> None:
    """Runs all cases."""
    arrays: dict[str, np.ndarray] = {}
    results = {}
    for name in model_cases.CASES:
        values, results[name] = record(name)
        arrays.update(values)
        print(name, flush=True)
    folder = pathlib.Path(__file__).parent
    np.savez_compressed(folder / "models.npz", **arrays)
    (folder / "models.json").write_text(json.dumps(results, indent=0) + "\n")


if __name__ == "__main__":
    main()
