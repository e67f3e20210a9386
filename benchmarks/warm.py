"""Calls of `predict` and `evaluate` after the first, against the model's bare computation.

The other side is a warm `tf.function` over the same data. For the small calls there are two other
sides. One has the data as tensors already, so that all of our call but the computation counts as
cost, making and opening the input too; the other makes and opens the same input. For the long
predictions both sides make and open their input.
"""

import collections
import functools
import tempfile
from collections.abc import Callable, Iterable

import numpy as np
import tensorflow as tf

import estimator as est
from benchmarks.hand_written import HandWrittenModel
from benchmarks.ours import Setup, make_estimator
from benchmarks.processes import answer
from benchmarks.report import Row, as_dicts
from benchmarks.timing import Rounds, divide, measure_rounds, time_call
from benchmarks.workloads import (
    WORKLOADS,
    Workload,
    make_batches,
    make_few_batches,
    make_training_input,
)

_NUM_PREDICTED = 32
_NUM_EVALUATED_BATCHES = 8
_NUM_STREAMED = 10_000
_STREAM_BATCH = 100
# (verb, what, beyond what, target in ms)
_COSTS = (
    ("predict", "32 examples", "bare predict", 5.0),
    ("predict", "32 examples", "bare predict and input", None),
    ("evaluate", "8 batches", "bare evaluate", None),
    ("evaluate", "8 batches", "bare evaluate and input", 5.0),
)
_THROUGHPUT_TARGET = 0.9
_NUM_CALLS = 100
_PREDICTOR_TARGET_MS = 0.2


def measure(workload: str, num_rounds: int, until: float, is_quick: bool) -> dict:
    """Both kinds of call, both sizes of prediction."""
    del is_quick  # every call is short
    work = WORKLOADS[workload]
    with tempfile.TemporaryDirectory() as directory:
        calls = {**make_our_calls(work, directory), **_make_predictor_calls(work, directory)}
        calls |= _make_bare_calls(work)
        contenders = {name: functools.partial(time_call, call) for name, call in calls.items()}
        rounds = measure_rounds(contenders, num_rounds, until)
    return {"rounds": rounds, "rows": as_dicts(make_rows(workload, rounds))}


def _make_inputs(work: Workload) -> dict[str, Callable[[], tf.data.Dataset]]:
    """The input functions."""

    def make_stream() -> tf.data.Dataset:
        num_batches = _NUM_STREAMED // _STREAM_BATCH
        return make_batches(work, _STREAM_BATCH).repeat().take(num_batches).prefetch(4)

    few = functools.partial(make_few_batches, work)
    return {
        "predict": functools.partial(few, _NUM_PREDICTED, 1),
        "evaluate": functools.partial(few, work.batch_size, _NUM_EVALUATED_BATCHES),
        "stream": make_stream,
    }


def make_our_calls(work: Workload, model_dir: str) -> dict[str, Callable[[], object]]:
    """Each call has an estimator of its own: its second call follows its first."""
    trained = make_estimator(work, model_dir, Setup(writes_checkpoints=True))
    trained.train(lambda: make_training_input(work), steps=1)
    inputs = _make_inputs(work)

    def make_predict(name: str, yield_single_examples: bool) -> Callable[[], object]:
        trained = make_estimator(work, model_dir, Setup())
        options = {"yield_single_examples": yield_single_examples}
        return lambda: collections.deque(trained.predict(inputs[name], **options), maxlen=0)

    evaluated = make_estimator(work, model_dir, Setup())
    return {
        "predict": make_predict("predict", True),
        "evaluate": lambda: evaluated.evaluate(inputs["evaluate"], steps=_NUM_EVALUATED_BATCHES),
        "stream of examples": make_predict("stream", True),
        "stream of batches": make_predict("stream", False),
    }


def _make_predictor_calls(work: Workload, model_dir: str) -> dict[str, Callable[[], object]]:
    """Calls of a predictor on one example, and its session calls alone."""
    trained = make_estimator(work, model_dir, Setup())
    batch, _ = next(iter(_make_inputs(work)["predict"]()))
    images: np.ndarray = batch.numpy()
    spec = tf.TensorSpec([None, *images.shape[1:]], images.dtype, "images")

    def receive() -> est.export.TensorServingInputReceiver:
        placeholder = tf.compat.v1.placeholder(spec.dtype, spec.shape, spec.name)
        return est.export.TensorServingInputReceiver(placeholder, {"images": placeholder})

    predictor = est.make_predictor(trained, receive)
    image = images[:1]
    feeds = list(predictor.feed_tensors.values())
    fetches = list(predictor.fetch_tensors.values())
    run = predictor.session.make_callable(fetches, feed_list=feeds)
    return {
        "predictor": lambda: [predictor({"images": image}) for _ in range(_NUM_CALLS)],
        "session": lambda: [run(image) for _ in range(_NUM_CALLS)],
    }


def _make_bare_calls(work: Workload) -> dict[str, Callable[[], object]]:
    model = HandWrittenModel(work)
    predict, evaluate = model.make_predict_function(), model.make_evaluate_function()
    inputs = _make_inputs(work)
    tensors = {name: list(inputs[name]()) for name in ("predict", "evaluate")}

    def run_predict(batches: Iterable[tuple[tf.Tensor, tf.Tensor]]) -> None:
        for images, _ in batches:
            for value in predict(images).values():
                value.numpy()

    def run_evaluate(batches: Iterable[tuple[tf.Tensor, tf.Tensor]]) -> None:
        for batch in batches:
            for value in evaluate(*batch):
                value.numpy()

    return {
        "bare predict": lambda: run_predict(tensors["predict"]),
        "bare evaluate": lambda: run_evaluate(tensors["evaluate"]),
        "bare predict and input": lambda: run_predict(inputs["predict"]()),
        "bare evaluate and input": lambda: run_evaluate(inputs["evaluate"]()),
        "bare stream": lambda: run_predict(inputs["stream"]()),
    }


def make_rows(workload: str, rounds: Rounds) -> list[Row]:
    """Costs in ms, throughputs as ratios."""
    rows = []
    for verb, what, beyond, target in _COSTS:
        pairs = zip(rounds[verb], rounds[beyond], strict=True)
        costs = [(ours - bare) * 1000 for ours, bare in pairs]
        label = f"{verb} {what}, beyond {beyond}"
        rows.append(Row("warm", workload, label, costs, unit="ms", target=target))
    pairs = zip(rounds["predictor"], rounds["session"], strict=True)
    costs = [(ours - bare) * 1000 / _NUM_CALLS for ours, bare in pairs]
    label = "predictor 1 example, beyond its session call"
    rows.append(Row("warm", workload, label, costs, unit="ms", target=_PREDICTOR_TARGET_MS))
    for kind in ("examples", "batches"):
        ratios = divide(rounds["bare stream"], rounds[f"stream of {kind}"])
        label = f"predict 10,000 by {kind}, speed / bare"
        row = Row("warm", workload, label, ratios, target=_THROUGHPUT_TARGET, at_least=True)
        rows.append(row)
    return rows


if __name__ == "__main__":
    answer(measure)
