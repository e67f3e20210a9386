"""What a task makes of the chief's record of the end of training."""

import contextlib
import json

import pytest

import estimator as est
from estimator.cluster.task_health import StartTimeoutError
from estimator.config.cluster import parse_tf_config
from estimator.roles.completion import check_ended_early, complete_call
from estimator.training.end_record import write_end


@pytest.mark.parametrize(
    ("task_type", "num_completed", "end", "is_enough"),
    [
        ("worker", 0, {"exit_status": 0, "reason": "hook", "call": 1}, True),
        ("ps", 0, {"exit_status": 0, "reason": "end of input", "call": 2}, True),
        ("worker", 1, {"exit_status": 0, "reason": "hook", "call": 2}, True),
        ("worker", 1, {"exit_status": 0, "reason": "hook", "call": 1}, False),
        ("worker", 0, {"exit_status": 0, "reason": "max_steps", "call": 1}, False),
        ("worker", 0, {"exit_status": 143, "reason": "signal or error", "call": 1}, False),
        ("worker", 0, None, False),
        ("chief", 0, {"exit_status": 0, "reason": "hook", "call": 1}, False),
    ],
)
def test_a_task_that_waits_in_vain_ends_well_after_an_early_end_of_its_call(
    tmp_path, caplog, task_type, num_completed, end, is_enough
):
    addresses = {"chief": ["127.0.0.1:1"], "worker": ["127.0.0.1:2"], "ps": ["127.0.0.1:3"]}
    task = {"type": task_type, "index": 0}
    cluster = parse_tf_config(json.dumps({"cluster": addresses, "task": task}))
    if end is not None:
        write_end(str(tmp_path), **end)
    for _ in range(num_completed):
        complete_call(str(tmp_path))
    absence = StartTimeoutError("The chief did not answer")
    with contextlib.nullcontext() if is_enough else pytest.raises(StartTimeoutError):
        check_ended_early(est.RunConfig(str(tmp_path), cluster=cluster), absence)
    assert ("The chief did not answer" in caplog.text) == is_enough
