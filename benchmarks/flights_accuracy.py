"""Accuracy, not speed: `run_wide_deep.py` beside two models of scikit-learn, on the same flights.

    pip install scikit-learn
    python -m benchmarks.flights_accuracy

All three train on the training flights and are measured on the test flights. What scikit-learn's
models can choose (regularization, the size and number of trees), the validation flights choose.
Ours is trained with several seeds. `docs/examples.md` has the figures.
"""

import itertools
import tempfile
from collections.abc import Iterator

import numpy as np
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

from input_pipelines import flights
from run_wide_deep import Training, compute_scores, find_best_export, predict_with_export, train

_NUM_SEEDS = 5
_CATEGORIES = ("carrier", "origin", "dest", "month", "weekday")
_NAMES = [name for name in flights.TYPES if name != flights.LABEL]
_CATEGORY_PLACES = [_NAMES.index(name) for name in _CATEGORIES]
_NUMBER_PLACES = [place for place in range(len(_NAMES)) if place not in _CATEGORY_PLACES]


def make_logistic_regressions() -> Iterator[Pipeline]:
    """Yields the candidates: one-hot categories and scaled numbers."""
    for strength in (0.01, 0.03, 0.1, 0.3, 1.0):
        inputs = make_column_transformer(
            (OneHotEncoder(handle_unknown="ignore"), _CATEGORY_PLACES),
            (StandardScaler(), _NUMBER_PLACES),
        )
        yield make_pipeline(inputs, LogisticRegression(C=strength, max_iter=2000))


def make_gradient_boostings() -> Iterator[Pipeline]:
    """Yields the candidates: trees of numbers and of numbered categories."""
    for num_trees, num_leaves in itertools.product((50, 100, 200), (4, 8, 16)):
        inputs = make_column_transformer(
            (
                OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1),
                _CATEGORY_PLACES,
            ),
            remainder="passthrough",
        )
        trees = HistGradientBoostingClassifier(
            max_iter=num_trees, max_leaf_nodes=num_leaves, learning_rate=0.05, random_state=0
        )
        yield make_pipeline(inputs, trees)


def read_table(split: str) -> tuple[np.ndarray, np.ndarray]:
    """Reads a split as scikit-learn takes it: objects [flights, columns], and the labels."""
    features, labels = flights.read_flights(split)
    columns = [features[name].astype(object) for name in _NAMES]
    return np.stack(columns, axis=1), labels


def measure_candidates(candidates: Iterator[Pipeline]) -> dict[str, float]:
    """Returns the test scores of the candidate with the highest validation AUC."""
    splits = {split: read_table(split) for split in flights.SPLITS}
    scores = []
    for candidate in candidates:
        candidate.fit(*splits["train"])
        validation, test = (
            compute_scores(labels, candidate.predict_proba(table)[:, 1])
            for table, labels in (splits["validation"], splits["test"])
        )
        scores.append((validation["AUC"], test))
    return max(scores, key=lambda pair: pair[0])[1]


def measure_ours(seed: int) -> dict[str, float]:
    """Returns the test scores of the best export of one training."""
    features, labels = flights.read_flights("test")
    with tempfile.TemporaryDirectory() as model_dir:
        train(Training(model_dir=model_dir, seed=seed))
        return compute_scores(labels, predict_with_export(find_best_export(model_dir), features))


def main() -> None:
    """Prints a table."""
    rows = {
        "logistic regression": measure_candidates(make_logistic_regressions()),
        "gradient boosting": measure_candidates(make_gradient_boostings()),
    }
    rows |= {f"wide and deep, seed {seed}": measure_ours(seed) for seed in range(_NUM_SEEDS)}
    for name, scores in rows.items():
        print(f"{name:<24}", *(f"{key} {score:.3f}" for key, score in scores.items()))


if __name__ == "__main__":
    main()
