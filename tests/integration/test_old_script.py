"""`tf.compat.v1.disable_v2_behavior()`, the first line of many an old script, changes nothing."""

import json
import os

import numpy as np
import pytest

from tests.forked import ROOT, Program

SCRIPT = os.path.join(ROOT, "tests", "integration", "old_script.py")
NAMES = ["b", "b/Adam", "b/Adam_1", "beta1_power", "beta2_power", "global_step"]
NAMES += ["w", "w/Adam", "w/Adam_1"]


def run_process(*arguments):
    with Program(SCRIPT, *arguments) as program:
        assert program.status() == 0, program.err[-3000:]
        return json.loads(program.out), program.err


@pytest.mark.each_value
@pytest.mark.slow
@pytest.mark.parametrize("iterations_per_loop", [1, 5])
@pytest.mark.parametrize(
    ("strategy", "num_replicas"),
    [("none", 1), ("one_device", 1), ("mirrored", 2), ("central_storage", 2)],
)
def test_an_old_script_runs_through_every_verb(
    tmp_path, strategy, num_replicas, iterations_per_loop
):
    result, log = run_process(tmp_path, strategy, num_replicas, iterations_per_loop)
    # Ten steps, then one pass over the thirty batches from where the input stood.
    assert result["global_step"] == (30 if num_replicas == 1 else 15)
    assert result["rows"] == 360
    # A hook that names variables gets their values after the step, not their handles.
    step, fetched, saved = result["seen"]
    assert (step, fetched) == (10, saved)
    assert result["names"] == NAMES
    np.testing.assert_allclose(result["w"], 0.5, atol=0.2)
    assert len(os.listdir(tmp_path / "export")) == 1
    assert "deprecated" not in log.partition("disable_resource_variables")[2].partition("term\n")[2]
