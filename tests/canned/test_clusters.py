"""Ready-made models in clusters: real processes on this machine."""

import pytest

from tests.canned import cluster_run, model_cases
from tests.canned.reference_data import check_variables, variables_at, write_checkpoint
from tests.integration.cluster import Cluster

PROGRAM = cluster_run.__file__
EMBEDDING = "dnn/input_from_feature_columns/input_layer/words_embedding/embedding_weights"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "loop"),
    [
        ("both_2", 100),
        *(pytest.param(*case, marks=pytest.mark.full) for case in (("both_2", 1), ("dnn_5", 100))),
    ],
)
def test_two_workers_take_the_steps_of_2_15(name, loop, tmp_path):
    write_checkpoint(variables_at(name, 0), tmp_path, 0)
    with Cluster(PROGRAM, "together", tmp_path, name, loop, worker=2) as cluster:
        cluster.check_all_succeed()
    ours = model_cases.read_variables(str(tmp_path), model_cases.NUM_STEPS)
    check_variables(ours, variables_at(name, model_cases.NUM_STEPS))


@pytest.mark.slow
def test_workers_train_the_parts_of_embeddings_on_a_ps_task(tmp_path):
    with Cluster(PROGRAM, "partitioned", tmp_path, worker=2, ps=1) as cluster:
        assert cluster.statuses() == [0, 0, 0], cluster["worker", 0].err[-3000:]
        lines = [line for index in (0, 1) for line in cluster["worker", index].results]
    placed = [line["devices"] for line in lines if line["case"] == "placed"]
    assert len(placed) == 2 * sum(map(len, cluster_run.PARTITIONED.values()))
    for devices in placed:
        assert {f"{EMBEDDING}/part_{i}" for i in (0, 1)} <= set(devices)
        assert set(devices.values()) == {"/job:ps/task:0"}
    for loop, trainings in cluster_run.PARTITIONED.items():
        steps = [line["step"] for line in lines if line["case"] == f"loop {loop}"]
        assert len(steps) == 2 * len(trainings)
        # The other worker may be in a loop when the last step is reached.
        assert max(steps) >= trainings[-1]
        # Evaluated in one process, where the embedding is in two parts, too.
        with cluster_run.make_partitioned(str(tmp_path / f"loop{loop}")) as model:
            assert model.get_variable_value(EMBEDDING).shape == (10, 3)
            input_fn = model_cases.eval_input_fn("two")
            result = model.evaluate(input_fn)
            first = str(tmp_path / f"loop{loop}" / "model.ckpt-0")
            losses_before = model.evaluate(input_fn, checkpoint_path=first)
            assert result["average_loss"] < losses_before["average_loss"]
