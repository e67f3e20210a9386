"""Ready-made models do what those of tf.estimator 2.15 do, from its checkpoints on."""

import itertools
import re

import numpy as np
import pytest

from tests.canned import experimental_cases, model_cases
from tests.canned.reference_data import (
    CASES,
    check_results,
    check_variables,
    input_fn,
    make,
    variables_at,
    write_checkpoint,
)

# The default run takes as many as show each model, optimizer, column and form once, with those of
# DEFAULT_ON_REPLICAS.
DEFAULT = (
    *("dnn_head", "both_5", "v1_linear", "v1_dnn", "v1_both"),
    *("lstm_clipped", "gru", "steps"),
)
# A KMeans of 2.15 has no centers in its first checkpoint, and threads decide on the steps of SDCA:
# tests/canned/test_kmeans.py and test_sdca.py.
EXACT = [
    name
    for name, case in CASES.items()
    if not getattr(case, "is_random", False) and name not in experimental_cases.OF_THEIR_OWN
]


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in DEFAULT else [pytest.mark.full]) for name in EXACT],
)
def test_twenty_steps_from_a_checkpoint_of_2_15_are_its_steps(name, tmp_path):
    """Losses are not compared: weights, and so gradients, are."""
    write_checkpoint(variables_at(name, 0), tmp_path, 0)
    with make(name, tmp_path, iterations_per_loop=7) as model:
        model.train(input_fn(name), max_steps=model_cases.NUM_STEPS)
        ours = model_cases.read_variables(str(tmp_path), model_cases.NUM_STEPS)
        check_variables(ours, variables_at(name, model_cases.NUM_STEPS))
        check_results(name, model)


# A batch norm has the statistics of a replica's part of the batch, and a loss of all steps is the
# mean over those of a replica's sequences (docs/limits.md).
OTHERWISE_ON_REPLICAS = {"dnn_numbers", "both_5", "v1_both", "steps", "steps_context"}
ON_REPLICAS = [name for name in EXACT if name not in OTHERWISE_ON_REPLICAS]
# In the default run, a pair of each two of them.
DEFAULT_ON_REPLICAS = (
    ("both_2", "mirrored", 1),
    ("linear_head", "mirrored", 100),
    ("dnn_5", "central_storage", 100),
    ("linear_5", "central_storage", 1),
    ("v1_dnn", "mirrored", 100),
    ("simple_context", "mirrored", 1),
)


def named_under_a_strategy(name, values):
    """In 2.15, too, slots of the single models of v1 have other names where nothing is in parts."""
    if name not in ("v1_linear", "v1_dnn"):
        return values
    pattern = re.compile(r"(\w+)/(.*)/(?:t_0|part_0)/(\w+)")
    return {pattern.sub(r"\1/\1/\2/\3", key): value for key, value in values.items()}


@pytest.mark.parametrize(
    ("name", "strategy", "loop"),
    [
        pytest.param(*case, marks=[] if case in DEFAULT_ON_REPLICAS else [pytest.mark.full])
        for case in itertools.product(ON_REPLICAS, ("mirrored", "central_storage"), (1, 100))
    ],
)
def test_two_replicas_take_the_same_steps(name, strategy, loop, tmp_path):
    before, after = (
        named_under_a_strategy(name, variables_at(name, step))
        for step in (0, model_cases.NUM_STEPS)
    )
    write_checkpoint(before, tmp_path, 0)
    config = {"iterations_per_loop": loop, "strategy": strategy, "num_replicas": 2}
    with make(name, tmp_path, **config) as model:
        model.train(input_fn(name), max_steps=model_cases.NUM_STEPS)
        check_variables(model_cases.read_variables(str(tmp_path), model_cases.NUM_STEPS), after)
        if loop == 1:  # Evaluation and prediction do not depend on it.
            check_results(name, model)


@pytest.mark.parametrize("name", ["both_5", "dnn_dropout"])
def test_a_new_model_starts_as_in_2_15(name, tmp_path):
    with make(name, tmp_path) as model:
        model.train(input_fn(name), max_steps=1)
    ours, theirs = model_cases.read_variables(str(tmp_path), 0), variables_at(name, 0)
    assert set(theirs) == set(variables_at(name, model_cases.NUM_STEPS))
    assert {key: value.shape for key, value in ours.items()} == {
        key: value.shape for key, value in theirs.items()
    }
    for key, value in theirs.items():
        # All but kernels and embeddings, which are random.
        if not key.endswith(("kernel", "embedding_weights")):
            np.testing.assert_array_equal(ours[key], value, err_msg=key)


def test_the_learning_rate_is_that_of_the_checkpoint(tmp_path):
    values = variables_at("linear_2", 0)
    values["training/Ftrl/learning_rate"] = np.float32(1e-12)
    write_checkpoint(values, tmp_path, 0)
    with make("linear_2", tmp_path) as model:
        model.train(input_fn("linear_2"), max_steps=2)
        weights = model.get_variable_value("linear/linear_model/x/weights")
        np.testing.assert_allclose(weights, 0, atol=1e-6)
