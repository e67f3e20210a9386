"""Trainings with asynchronous checkpoints, and what watches them."""

import glob
import os
import threading

import tensorflow as tf

import estimator as est
from tests.conformance import cases
from tests.toy import Model

v1 = tf.compat.v1


def make(model_dir, model_fn=None, *, strategy="no_strategy", loop=1, is_async=True, **config):
    config = {"save_checkpoints_steps": 2, "resume_input": True, **config}
    run_config = cases.make_config(
        **cases.STRATEGIES[strategy],
        iterations_per_loop=loop,
        async_checkpoints=is_async,
        **config,
    )
    return est.Estimator(model_fn or Model(), str(model_dir), run_config)


class Calls(est.CheckpointSaverListener):
    """Notes the calls, in which thread they come, and which checkpoints are there then."""

    def __init__(self, model_dir):
        self.model_dir = str(model_dir)
        self.calls, self.threads, self.newest = [], set(), {}

    def before_save(self, session, global_step_value):
        self._note("before", global_step_value)

    def after_save(self, session, global_step_value):
        self._note("after", global_step_value)
        self.newest[int(global_step_value)] = tf.train.latest_checkpoint(self.model_dir)

    def end(self, session, global_step_value):
        self._note("end", global_step_value)

    def _note(self, what, step):
        self.calls.append((what, int(step)))
        self.threads.add(threading.current_thread())


class AtStep(v1.train.SessionRunHook):
    """Calls a function in the session call that reaches a step."""

    def __init__(self, step, function):
        self._at, self._function = step, function

    def begin(self):
        self._step = v1.train.get_global_step().read_value()

    def after_run(self, run_context, run_values):
        if run_context.session.run(self._step) == self._at:
            self._function()


def model_with_saver(make_saver):
    """A model_fn of one weight, and the list of the savers that it makes."""
    savers = []

    def model_fn(features, labels, mode):
        spec = Model()(features, labels, mode)
        savers.append(make_saver())
        return spec.replace(scaffold=v1.train.Scaffold(saver=savers[-1]))

    return model_fn, savers


def contents(model_dir):
    """The files of checkpoints and of positions, but for the graphs, by name."""
    names = [*glob.glob(f"{model_dir}/model.ckpt-*"), *glob.glob(f"{model_dir}/input-position/*")]
    files = {}
    for name in names:
        if not name.endswith(".meta"):
            with open(name, "rb") as file:
                files[os.path.relpath(name, model_dir)] = file.read()
    return files
