"""Runs a program by the library and by its truth, and compares all that can be seen of both."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import tempfile

import keras
import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from tests.differential.graph import make_input_fn, make_model_fn
from tests.differential.program import STRATEGIES, Input
from tests.differential.truth import NoBatchError, Truth, evaluate, predict
from tests.toy import checkpoint_steps, events

# To float rounding, which some steps of training make larger.
CLOSE = {"rtol": 1e-3, "atol": 1e-4}


def check(program):
    """Raises AssertionError where the library and the truth about `program` differ."""
    with tempfile.TemporaryDirectory() as model_dir, contextlib.ExitStack() as stack:
        try:
            _Comparison(program, model_dir, stack).run()
        finally:
            stack.close()
            tf.compat.v1.reset_default_graph()
            keras.backend.clear_session()  # Looks for garbage, too: graphs are full of cycles.


class _Comparison:
    def __init__(self, program, model_dir, stack):
        self._program, self._model_dir, self._stack = program, model_dir, stack
        self._truth = Truth(program)
        self._input_fn = make_input_fn(program.input)
        self._model = None
        self._logged, self._recorded = {}, {}

    def run(self):
        for number, part in enumerate(self._program.parts):
            if not self._train(part, f"part {number}: "):
                return
        if self._program.check is not None and self._truth.saved:
            self._check_model()

    def _train(self, part, where):
        """Runs a part on both sides; returns whether training can go on."""
        if part.is_new_object or self._model is None:
            self._model = self._make(part.strategy, part)
        try:
            told = self._truth.train(part)
        except NoBatchError:
            with pytest.raises(ValueError, match="gave no batch for every replica"):
                self._model.train(self._input_fn, steps=part.steps, max_steps=part.max_steps)
            return False
        self._model.train(self._input_fn, steps=part.steps, max_steps=part.max_steps)
        result = self._model.train_result
        assert (result.global_step, result.reason) == (told.step, told.reason), where
        if told.losses:
            _assert_close(result.loss, told.losses[told.step], where + "train_result.loss")
        self._logged |= {step: told.losses[step] for step in told.logged}
        self._recorded |= {step: (told.losses[step], told.seen[step]) for step in told.recorded}
        self._check_logs(where)
        self._check_events(where)
        self._check_checkpoints(where)
        return True

    def _make(self, strategy, part=None):
        name, _, num_replicas = (strategy or "").partition("_x")
        chosen = {"strategy": name or None}
        if num_replicas:
            chosen["num_replicas"] = int(num_replicas)
        if part is not None:
            chosen |= {
                "iterations_per_loop": part.loop,
                "save_checkpoints_steps": part.save_every,
                "save_summary_steps": part.summary_every,
                "log_step_count_steps": part.log_every,
                "keep_checkpoint_max": part.keep,
                "resume_input": part.resume_input,
            }
        config = est.RunConfig(checkpoint_save_graph_def=False, **chosen)
        model = est.Estimator(make_model_fn(self._program), self._model_dir, config)
        return self._stack.enter_context(model)

    # --- What training leaves ---

    def _check_logs(self, where):
        lines = self._lines("train")
        steps = [line["step"] for line in lines]
        assert steps == sorted(self._logged), f"{where}steps in metrics.jsonl"
        for line in lines:
            expected = self._logged[line["step"]]
            _assert_close(line["loss"], expected, f"{where}loss of {line['step']} in its log")

    def _lines(self, kind):
        path = os.path.join(self._model_dir, "metrics.jsonl")
        if not os.path.exists(path):
            return []
        with open(path) as file:
            lines = [json.loads(line) for line in file]
        return [line for line in lines if line["kind"] == kind]

    def _check_events(self, where):
        found = {"loss": {}, "seen": {}}
        for step, tag, value in events(self._model_dir):
            if tag in found:
                found[tag][step] = (
                    tf.make_ndarray(value.tensor)
                    if value.HasField("tensor")
                    else value.simple_value
                )
        for index, tag in enumerate(found):
            expected = {step: values[index] for step, values in self._recorded.items()}
            assert sorted(found[tag]) == sorted(expected), f"{where}{tag} in the event files"
            for step, value in found[tag].items():
                _assert_close(value, expected[step], f"{where}{tag} of {step} in its event")

    def _check_checkpoints(self, where):
        saved = self._truth.saved
        there = checkpoint_steps(self._model_dir)
        assert there == sorted(saved), f"{where}checkpoints {there}, not {sorted(saved)}"
        for step, expected in saved.items():
            path = os.path.join(self._model_dir, f"model.ckpt-{step}")
            self._check_values(tf.train.load_checkpoint(path), expected, f"{where}step {step}: ")
        partial = glob.glob(os.path.join(self._model_dir, "*tempstate*"))
        assert partial == [], where + "files that no save finished"

    def _check_values(self, reader, expected, where):
        found = {}
        for name in reader.get_variable_to_shape_map():
            if name.startswith("CrossShardOptimizer/"):
                if not name.endswith("/loss"):
                    assert not np.any(reader.get_tensor(name)), f"{where}{name} is not zero"
                continue
            if name.startswith("seed_generator"):
                continue  # Of Keras's recurrent layers, for their dropout.
            # Keras numbers its optimizers' names by process: "adam_2/iteration".
            end = name.rpartition("/")[2]
            key = end if name not in expected and end in expected else name
            found[key] = reader.get_tensor(name)
        if expected["global_step"] == 0:  # The truth has no slots before it applies a gradient.
            found = {name: value for name, value in found.items() if name in expected}
        assert sorted(found) == sorted(expected), where + "variables of the checkpoint"
        for name, value in expected.items():
            _assert_close(found[name], value, where + name)

    # --- What is done with the model ---

    def _check_model(self):
        check, saved = self._program.check, self._truth.saved
        source = Input(num_examples=check.num_examples, batch_size=check.batch_size)
        model = self._make(check.strategy)
        step = min(saved) if check.of_oldest else max(saved)
        path = os.path.join(self._model_dir, f"model.ckpt-{step}") if check.of_oldest else None
        is_central = (check.strategy or "").startswith("central")
        num_replicas = 1 if is_central else STRATEGIES[check.strategy]
        expected = evaluate(self._program, saved[step], num_replicas)
        found = model.evaluate(make_input_fn(source), steps=check.steps, checkpoint_path=path)
        assert sorted(found) == sorted(expected)
        for name, value in expected.items():
            _assert_close(found[name], value, f"evaluate: {name}")
        (line,) = self._lines("eval")
        assert line["step"] == step
        _assert_close(line["loss"], expected["loss"], "evaluate: loss in metrics.jsonl")
        if check.predicts:
            rows = list(model.predict(make_input_fn(source), checkpoint_path=path))
            logits = predict(self._program, saved[step])
            assert len(rows) == len(logits)
            _assert_close([row["logits"] for row in rows], logits, "predict: logits")


def _assert_close(found, expected, what):
    np.testing.assert_allclose(found, expected, **CLOSE, err_msg=what)
