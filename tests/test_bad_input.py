"""What users get wrong, and the error that each must get: before anything is built or written.

The rows are in `tests/bad_input`. A row is one call of an Estimator on a tiny real model: what is
wrong, the call, the type of the error, and its message, where " ... " stands for anything. A
table says which of the user's functions have been called by then. Nothing on the disk may change.
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
import shutil
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from estimator.checkpoint.errors import CheckpointError
from estimator.config.checks import WrongTypeError
from estimator.runtime import local
from estimator.session.hook_errors import HookInLoopError
from tests.bad_input import (
    construction,
    evaluation,
    functions,
    scaling,
    serving,
    specs,
    training,
    warm_start,
)
from tests.bad_input.stage import V1, Stage, batches, dataset, linear, tensor_receiver

# Errors that are of two types, because tf.estimator's was of one of them, or of the other; and one
# that the library catches in some programs.
SUBCLASSES = (WrongTypeError, CheckpointError, HookInLoopError)

ON_INPUT, ON_MODEL = ("input_fn",), ("input_fn", "model_fn")
ON_RECEIVER, ON_EXPORT = ("serving_fn",), ("serving_fn", "model_fn")

# (rows, which of the user's functions were called, whether `model_dir` holds a checkpoint before)
TABLES = (
    (construction.CONSTRUCTION, (), False),
    (construction.CONFIG, (), False),
    (functions.NUMPY_INPUT, (), False),
    (functions.PANDAS_INPUT, (), False),
    (functions.PARSE_SPECS, (), False),
    (functions.ESTIMATORS, (), False),
    (functions.ADDED_METRICS, ON_MODEL, True),
    (specs.SPECS, (), False),
    (specs.TRAIN_AND_EVALUATE, (), False),
    (specs.EXPORTERS, (), False),
    (specs.EARLY_STOPPING, (), False),
    (specs.IN_MEMORY, (), False),
    (training.TRAIN, (), False),
    (training.TRAIN_INPUT, ON_INPUT, False),
    (training.TRAIN_MODEL, ON_MODEL, False),
    # Training has begun by then, and has saved step 0.
    (training.TRAIN_RUN, ON_MODEL, False, True),
    (evaluation.UNTRAINED, (), False),
    (evaluation.EVALUATE, (), True),
    (evaluation.EVALUATE_INPUT, ON_INPUT, True),
    (evaluation.EVALUATE_MODEL, ON_MODEL, True),
    (scaling.OPTIMIZER, (), False),
    (scaling.OPTIMIZER_MODEL, ON_MODEL, False),
    (scaling.PIPELINES, ON_INPUT, False),
    (serving.PREDICT_MODEL, ON_MODEL, True),
    (serving.EXPORT, (), True),
    (serving.EXPORT_RECEIVER, ON_RECEIVER, True),
    (serving.EXPORT_MODEL, ON_EXPORT, True),
    (warm_start.SETTINGS, (), False),
    (warm_start.FILES, (), True),
    (warm_start.MODEL, ON_MODEL, True),
)


@dataclasses.dataclass(frozen=True)
class Case:
    """A row, and what its table says of it."""

    call: Callable[[Stage], Any]
    error: type[Exception]
    message: str
    calls: tuple[str, ...]
    is_trained: bool
    has_begun: bool = False

    def check_message(self, message: str) -> None:
        """Raises unless every part is there, in order."""
        rest = message
        for part in self.message.split(" ... "):
            assert part in rest, f"{part!r} is not in {rest!r}, the rest of: {message}"
            rest = rest.split(part, 1)[1]


_OF_STEP_0 = r"model$|model/(checkpoint$|graph\.pbtxt$|model\.ckpt-0\.|events\.)"
CASES = {name: Case(*row, *table) for rows, *table in TABLES for name, row in rows.items()}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A model_dir with the linear model at step 2."""
    stage = Stage(tmp_path_factory.mktemp("trained"))
    stage.train(steps=2)
    return stage.model_dir


@pytest.fixture
def stage(tmp_path):
    return Stage(tmp_path)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_mistake_gets_its_error_and_changes_nothing(case, stage, request):
    if case.is_trained:
        shutil.copytree(request.getfixturevalue("trained"), stage.model_dir)
    before = stage.snapshot()
    with pytest.raises(case.error) as caught:
        case.call(stage)
    assert caught.type in (case.error, *SUBCLASSES)
    assert issubclass(caught.type, case.error)
    case.check_message(str(caught.value))
    assert tuple(dict.fromkeys(stage.calls)) == case.calls
    after = stage.snapshot()
    if case.has_begun:
        begun = {name for name in after if re.match(_OF_STEP_0, name)}
        assert {"model", "model/model.ckpt-0.index"} <= begun
        after = {name: content for name, content in after.items() if name not in begun}
    assert after == before


def dict_receiver():
    receiver = tensor_receiver()
    return est.export.ServingInputReceiver(receiver.features, receiver.features)


def as_dict(x, y):
    return {"x": x}, y


@pytest.mark.parametrize(
    ("verb", "says"),
    [
        (
            lambda s, m: m.evaluate(s.watch("input_fn", dataset(lambda d: d.map(as_dict)))),
            "{'x': 'float32[batch, 2]'} (AttributeError: ",
        ),
        (
            lambda s, m: m.predict(s.watch("input_fn", dataset(lambda d: d.map(as_dict)))),
            "{'x': 'float32[batch, 2]'} (AttributeError: ",
        ),
        (
            lambda s, m: m.export_saved_model(str(s.root / "export"), dict_receiver),
            "{'feature': 'float32[batch, 2]'} (AttributeError: ",
        ),
        (
            lambda s, m: m.train(s.watch("input_fn", dataset(lambda d: d.map(as_dict)))),
            "{'x': 'float32[batch, 2]'} (AttributeError: ",
        ),
    ],
    ids=["evaluate", "predict", "export", "train"],
)
def test_features_of_another_structure_than_in_train_are_shown_beside_those(stage, verb, says):
    model = stage.model()
    model.train(batches(), steps=2)
    before = stage.snapshot()
    with pytest.raises(ValueError, match="Yield the same structure from `input_fn`") as caught:
        verb(stage, model)
    assert f"`model_fn` fails on the features {says}" in str(caught.value)
    assert "It was trained on float32[batch, 2]." in str(caught.value)
    assert stage.snapshot() == before


@pytest.mark.parametrize("input_fn", [batches(), dataset(lambda d: d.map(lambda x, y: x))])
def test_another_error_of_the_model_fn_stays_what_it_is(stage, input_fn):
    def model_fn(features, labels, mode):
        if mode == est.ModeKeys.EVAL:
            raise KeyError("no such column")
        return linear(features, labels, mode)

    model = stage.model(model_fn)
    model.train(batches(), steps=1)
    with pytest.raises(KeyError, match="no such column"):
        model.evaluate(input_fn)


@pytest.mark.parametrize("make", [tf.sparse.from_dense, tf.RaggedTensor.from_tensor])
@pytest.mark.parametrize(
    ("dtype", "error", "says"),
    [
        (tf.float32, KeyError, "no such column"),
        (tf.int64, ValueError, "int64 (Sparse|Ragged)Tensor.*float32 (Sparse|Ragged)Tensor"),
    ],
)
def test_sparse_and_ragged_features_are_shown_only_if_they_are_others(
    stage, make, dtype, error, says
):
    def model_fn(features, mode):
        if mode == est.ModeKeys.PREDICT:
            raise KeyError("no such column")
        w = V1.get_variable("w", [])
        return est.EstimatorSpec(mode, loss=w, train_op=V1.train.get_global_step().assign_add(1))

    def rows(dtype):
        return lambda: tf.data.Dataset.from_tensors({"x": make(tf.ones([2, 3], dtype))})

    model = stage.model(model_fn)
    model.train(rows(tf.float32), steps=1)
    with pytest.raises(error, match=says):
        list(model.predict(rows(dtype)))


@pytest.mark.parametrize("loop", [1, 100])
@pytest.mark.parametrize("limit", [{"steps": 300}, {"max_steps": 300}, {}], ids=str)
def test_the_first_of_a_stop_hook_and_a_limit_stops(stage, loop, limit):
    config = est.RunConfig(iterations_per_loop=loop, save_summary_steps=None)
    model = stage.model(config=config)
    for _ in range(2):  # The second time it is past the hook's step already.
        model.train(
            dataset(lambda d: d.repeat()), hooks=[V1.train.StopAtStepHook(last_step=7)], **limit
        )
        assert model.train_result.global_step == 7
        assert model.train_result.reason == "hook"


def test_more_replicas_than_gpus_are_refused_before_the_input_is_built(stage, monkeypatch):
    monkeypatch.setattr(local, "count_gpus", lambda: 2)
    with pytest.raises(ValueError, match="must be at most the number of GPUs") as caught:
        stage.train(config=est.RunConfig(strategy="mirrored", num_replicas=3))
    message = str(caught.value)
    assert "`num_replicas` (3) must be at most the number of GPUs (2). Leave it out" in message
    assert stage.calls == []
    assert list(stage.snapshot()) == ["notes.txt"]


def test_an_empty_dataset_predicts_nothing(stage, trained):
    model = stage.model(model_dir=trained)
    assert list(model.predict(dataset(lambda d: d.take(0)))) == []


def test_numpy_integers_and_paths_are_taken(stage):
    model = stage.model(model_dir=pathlib.Path(stage.model_dir))
    model.train(batches(), steps=np.int64(1))
    model.train(batches(), max_steps=np.int32(2))
    checkpoint = pathlib.Path(stage.checkpoint())
    assert model.evaluate(batches(), np.int64(1), checkpoint_path=checkpoint)["global_step"] == 2


def test_a_dataset_of_unknown_shapes_is_evaluated(stage, trained):
    def forget_shapes(x, y):
        return tf.numpy_function(lambda *row: row, [x, y], [tf.float32, tf.float32])

    def model_fn(features, labels, mode):
        shaped = tf.ensure_shape(features, [None, 2]), tf.ensure_shape(labels, [None])
        return linear(*shaped, mode)

    known = stage.model(model_dir=trained).evaluate(batches())["loss"]
    unknown = stage.model(model_fn, model_dir=trained).evaluate(
        dataset(lambda d: d.map(forget_shapes))
    )
    assert unknown["loss"] == known


def test_there_are_at_least_forty_cases_and_none_is_lost():
    assert len(CASES) == sum(len(rows) for rows, *_ in TABLES) >= 40
