"""What a checkpoint every 100 steps costs: none, synchronous, asynchronous."""

import functools
import tempfile
from collections.abc import Callable

import numpy as np
import tensorflow as tf

import estimator as est
from benchmarks.ours import ReportHook, make_model_fn
from benchmarks.processes import answer
from benchmarks.report import Row, as_dicts
from benchmarks.timing import divide, measure_trainers
from benchmarks.workloads import LEARNING_RATE, WORKLOADS, make_training_input

_SAVE_STEPS = 100
# A step of the dense layer takes 0.1 to 0.4 s: first calls of 100 steps would be up to two minutes
# for three contenders.
_LOOP_STEPS = {"dense": 20}
_TARGET = 1.03
_NUM_IDS, _NUM_COLUMNS = 1_000_000, 100
_NUM_UNITS = 10_000
_BATCH_SIZES = {"embedding": 512, "dense": 32}

# (contender, changes to a config that saves)
_CONTENDERS = {
    "none": {"save_checkpoints_steps": None},
    "sync": {},
    "sync, no .meta": {"checkpoint_save_graph_def": False},
    "sync, no position": {"resume_input": False},
    "async": {"async_checkpoints": True},
}


def measure(workload: str, num_rounds: int, until: float, is_quick: bool) -> dict:
    """All contenders on one workload; a round has two saves, or one where steps are long."""
    model_fn, input_fn = _make_functions(workload)
    with tempfile.TemporaryDirectory() as directory:
        loop_steps = _LOOP_STEPS.get(workload, _SAVE_STEPS)
        train = functools.partial(_train, model_fn, input_fn, loop_steps)
        trainers = {
            name: functools.partial(train, f"{directory}/{index}", changes)
            for index, (name, changes) in enumerate(_CONTENDERS.items())
            if workload in WORKLOADS or "no" not in name.split(" ")
        }
        round_steps = _SAVE_STEPS * (2 if workload == "embedding" and not is_quick else 1)
        rounds = measure_trainers(trainers, round_steps, num_rounds, until)
    ratios = {name: divide(rounds[name], rounds["none"]) for name in rounds if name != "none"}
    # A cheap step of a large model takes less time than its weights to write, on whatever thread.
    target = None if workload == "embedding" else _TARGET
    rows = [
        Row("saves", workload, f"{name} / none", values, target=target if name == "async" else None)
        for name, values in ratios.items()
    ]
    rows.append(Row("saves", workload, "a step", [s * 1e3 for s in rounds["none"]], unit="ms"))
    return {"rounds": rounds, "rows": as_dicts(rows)}


def _make_functions(workload: str) -> tuple[Callable, Callable]:
    """The `model_fn` and the `input_fn`."""
    if workload in WORKLOADS:
        work = WORKLOADS[workload]
        return make_model_fn(work), functools.partial(make_training_input, work)
    size = _BATCH_SIZES[workload]
    return functools.partial(_large_model_fn, workload), functools.partial(_make_ids, size)


def _large_model_fn(
    workload: str, features: tf.Tensor, labels: tf.Tensor, mode: str
) -> est.EstimatorSpec:
    """100 million weights: rows to look up, few of which a step changes, or one layer."""
    v1 = tf.compat.v1
    if workload == "embedding":
        zeros = v1.zeros_initializer()
        table = v1.get_variable("table", [_NUM_IDS, _NUM_COLUMNS], initializer=zeros)
        hidden = tf.nn.embedding_lookup(table, features)
        for index in range(5):  # As much work as the CNN's.
            shape = [hidden.shape[-1], 512]
            hidden = tf.nn.relu(hidden @ v1.get_variable(f"hidden_{index}", shape))
    else:
        inputs = tf.one_hot(features % _NUM_UNITS, _NUM_UNITS)
        hidden = inputs @ v1.get_variable("kernel", [_NUM_UNITS, _NUM_UNITS])
    logits = hidden @ v1.get_variable("logits", [hidden.shape[-1], 10])
    loss = v1.losses.sparse_softmax_cross_entropy(labels, logits)
    optimizer = v1.train.GradientDescentOptimizer(LEARNING_RATE)
    train_op = optimizer.minimize(loss, v1.train.get_global_step())
    return est.EstimatorSpec(mode, loss=loss, train_op=train_op)


def _make_ids(batch_size: int) -> tf.data.Dataset:
    rng = np.random.default_rng(0)
    ids = rng.integers(0, _NUM_IDS, size=(16, batch_size), dtype=np.int32)
    return tf.data.Dataset.from_tensor_slices((ids, ids % 10)).cache().repeat().prefetch(4)


def _train(
    model_fn: Callable,
    input_fn: Callable,
    loop_steps: int,
    model_dir: str,
    changes: dict,
    report: Callable[[int], bool],
) -> None:
    """Trains until `report(steps of the last call)` returns False."""
    config = est.RunConfig(
        iterations_per_loop=loop_steps,
        save_checkpoints_steps=_SAVE_STEPS,
        save_summary_steps=None,
        log_step_count_steps=None,
        keep_checkpoint_max=1,
    ).replace(**changes)
    if config.save_checkpoints_steps is None:
        config = config.replace(save_checkpoints_secs=None)
    hook = ReportHook(report, loop_steps)
    est.Estimator(model_fn, model_dir, config).train(input_fn, hooks=[hook])


if __name__ == "__main__":
    answer(measure)
