"""Heads do what those of tf.estimator 2.15 do; `reference/heads.json` has what that is."""

import json
import math
import pathlib

import pytest

import estimator as est
from tests.heads import head_cases

REFERENCE = json.loads((pathlib.Path(__file__).parent / "reference" / "heads.json").read_text())


def differences(ours, theirs, path=""):
    """Where two records differ: lines of text."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in {**theirs, **ours}:
            if key not in ours or key not in theirs:
                yield f"{path}/{key}: only in {'2.15' if key in theirs else 'ours'}"
            else:
                yield from differences(ours[key], theirs[key], f"{path}/{key}")
    elif isinstance(theirs, list) and isinstance(ours, list) and len(ours) == len(theirs):
        for index, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(a, b, f"{path}[{index}]")
    elif isinstance(theirs, float) and isinstance(ours, float):
        if not math.isclose(ours, theirs, rel_tol=1e-5, abs_tol=1e-6):
            yield f"{path}: {ours}, 2.15 {theirs}"
    elif ours != theirs:
        yield f"{path}: {ours!r}, 2.15 {theirs!r}"


def test_every_case_is_recorded():
    assert list(REFERENCE) == list(head_cases.CASES)


# In the default run: each kind of head with all of its arguments, and what is most used.
DEFAULT = (
    "binary",
    "binary_weights_of_a_column",
    "binary_thresholds",
    "binary_words",
    "binary_sum",
    "binary_loss_fn_of_features",
    "binary_soft",
    "binary_sequence",
    "classes",
    "classes_name_weights",
    "classes_words",
    "classes_sequence",
    "labels_all_arguments",
    "labels_sparse_words",
    "labels_sum",
    "numbers_name_weights",
    "numbers_2_weights_each",
    "numbers_inverse_link",
    "poisson",
    "logistic_sum",
    "heads",
)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in DEFAULT else [pytest.mark.full])
        for name in head_cases.CASES
    ],
)
def test_a_head_does_what_it_did_in_2_15(name):
    ours = json.loads(json.dumps(head_cases.record(name, est)))
    theirs = REFERENCE[name]
    for mode in ("train", "eval", "infer"):
        # Names of tensors that programs fetch.
        names, old_names = ours[mode].pop("names"), theirs[mode].pop("names")
        for key in {"logistic", "probabilities", "predictions"} & old_names.keys():
            assert names[key] == old_names[key]
    assert list(differences(ours, theirs)) == []
