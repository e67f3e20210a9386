"""Rows for `test_bad_input`: `train_and_evaluate`, exporters and the hooks around them."""

from __future__ import annotations

import json

import estimator as est
from estimator.config.cluster import parse_tf_config
from tests.bad_input.stage import V1, batches, tensor_receiver

_CLUSTER = {"chief": ["a:1"], "worker": ["b:1"]}


def _train_spec(**arguments):
    return est.TrainSpec(**{"input_fn": batches(), "max_steps": 10, **arguments})


def _eval_spec(**arguments):
    return est.EvalSpec(**{"input_fn": batches(), **arguments})


def _run(stage, train_spec=None, eval_spec=None, config=None):
    return est.train_and_evaluate(
        stage.model(config=config),
        _train_spec() if train_spec is None else train_spec,
        _eval_spec() if eval_spec is None else eval_spec,
    )


def _latest(name="latest", receiver_fn=tensor_receiver, **arguments):
    return est.LatestExporter(name, receiver_fn, **arguments)


def _best(**arguments):
    return est.BestExporter(serving_input_receiver_fn=tensor_receiver, **arguments)


def _task(role):
    """A config of one task in a cluster of two."""
    text = {"cluster": _CLUSTER, "task": {"type": role, "index": 0}}
    return est.RunConfig(cluster=parse_tf_config(json.dumps(text)))


class _NoName(est.Exporter):
    name = None

    def export(self, **arguments):
        return None


def _early(stage, should_stop_fn=lambda: False, **arguments):
    return est.experimental.make_early_stopping_hook(stage.model(), should_stop_fn, **arguments)


def _no_decrease(stage, metric_name="loss", steps=10, **arguments):
    make = est.experimental.stop_if_no_decrease_hook
    return make(stage.model(), metric_name, steps, **arguments)


def _in_memory(stage, input_fn=None, **arguments):
    hook = est.experimental.InMemoryEvaluatorHook
    return hook(stage.model(), batches() if input_fn is None else input_fn, **arguments)


SPECS = {
    "the input of a TrainSpec is a dataset": (
        lambda s: _train_spec(input_fn=batches()()),
        TypeError,
        "`input_fn` (<_BatchDataset ... must be a function that returns a tf.data.Dataset",
    ),
    "the max_steps of a TrainSpec are zero": (
        lambda s: _train_spec(max_steps=0),
        ValueError,
        "`max_steps` (0) must be at least 1",
    ),
    "the hooks of a TrainSpec are one hook": (
        lambda s: _train_spec(hooks=V1.train.StopAtStepHook(3)),
        TypeError,
        "`hooks` (< ... must be a list of SessionRunHooks",
    ),
    "a listener of a TrainSpec is a function": (
        lambda s: _train_spec(saving_listeners=[print]),
        TypeError,
        "`saving_listeners` holds <built-in function print> ... CheckpointSaverListener",
    ),
    "a TrainSpec is replaced with an unknown name": (
        lambda s: _train_spec().replace(maximum=3),
        TypeError,
        "`maximum` is not a field of TrainSpec. Use one of 'input_fn', 'max_steps'",
    ),
    "the input of an EvalSpec takes an unknown argument": (
        lambda s: _eval_spec(input_fn=lambda batch_size: None),
        ValueError,
        "`input_fn` takes unknown arguments (batch_size)",
    ),
    "the steps of an EvalSpec are negative": (
        lambda s: _eval_spec(steps=-1),
        ValueError,
        "`steps` (-1) must be at least 1; leave it out",
    ),
    "the steps of an EvalSpec are a float": (
        lambda s: _eval_spec(steps=1.5),
        TypeError,
        "`steps` (1.5) must be an integer, or None",
    ),
    "the name of an EvalSpec is a number": (
        lambda s: _eval_spec(name=3),
        TypeError,
        "`name` (3) must be a string, or None",
    ),
    "the name of an EvalSpec leads out": (
        lambda s: _eval_spec(name="../test"),
        ValueError,
        "`name` ('../test') must not lead out of `model_dir`",
    ),
    "a hook of an EvalSpec is a class": (
        lambda s: _eval_spec(hooks=[V1.train.StopAtStepHook]),
        TypeError,
        "`hooks` holds <class ... StopAtStepHook'>, which is not an instance of",
    ),
    "the start_delay_secs are negative": (
        lambda s: _eval_spec(start_delay_secs=-1),
        ValueError,
        "`start_delay_secs` (-1) must be at least 0",
    ),
    "the throttle_secs are a string": (
        lambda s: _eval_spec(throttle_secs="10m"),
        TypeError,
        "`throttle_secs` ('10m') must be a number",
    ),
    "the every_steps are zero": (
        lambda s: _eval_spec(every_steps=0),
        ValueError,
        "`every_steps` (0) must be at least 1",
    ),
    "the exporters are a function": (
        lambda s: _eval_spec(exporters=tensor_receiver),
        TypeError,
        "`exporters` (<function ... must be an Exporter or a list of them",
    ),
    "an exporter is a string": (
        lambda s: _eval_spec(exporters=["best"]),
        TypeError,
        "`exporters` holds 'best', which is not an estimator.Exporter. Derive its",
    ),
    "two exporters have one name": (
        lambda s: _eval_spec(exporters=[_latest(), _latest()]),
        ValueError,
        "`exporters` has the name 'latest' 2 times. Give each another `name`",
    ),
    "an exporter has no name": (
        lambda s: _eval_spec(exporters=_NoName()),
        TypeError,
        "The `name` of an exporter (None) must be a string",
    ),
}

TRAIN_AND_EVALUATE = {
    "the estimator is a model_fn": (
        lambda s: est.train_and_evaluate(print, _train_spec(), _eval_spec()),
        TypeError,
        "`estimator` (<built-in function print>) must be an estimator.Estimator",
    ),
    "the specs are the other way round": (
        lambda s: est.train_and_evaluate(s.model(), _eval_spec(), _train_spec()),
        TypeError,
        "`train_spec` (EvalSpec( ... must be an estimator.TrainSpec",
    ),
    "the eval_spec is a TrainSpec": (
        lambda s: _run(s, eval_spec=_train_spec()),
        TypeError,
        "`eval_spec` (TrainSpec( ... must be an estimator.EvalSpec or a list of them",
    ),
    "the eval_spec is an empty list": (
        lambda s: _run(s, eval_spec=[]),
        TypeError,
        "`eval_spec` ([]) must be an estimator.EvalSpec or a list of them",
    ),
    "one of the EvalSpecs is None": (
        lambda s: _run(s, eval_spec=[_eval_spec(), None]),
        TypeError,
        "`eval_spec` ([EvalSpec( ... must be an estimator.EvalSpec or a list of them",
    ),
    "two EvalSpecs have no name": (
        lambda s: _run(s, eval_spec=[_eval_spec(), _eval_spec()]),
        ValueError,
        "`eval_spec` has the name None 2 times. Give each another `name`",
    ),
    "exporters of two EvalSpecs have one name": (
        lambda s: _run(
            s, eval_spec=[_eval_spec(exporters=_latest(), name=n) for n in ("one", "two")]
        ),
        ValueError,
        "`exporters` has the name 'latest' 2 times",
    ),
    "every_steps that no checkpoint is at": (
        lambda s: _run(
            s,
            eval_spec=_eval_spec(every_steps=50),
            config=est.RunConfig(save_checkpoints_steps=30),
        ),
        ValueError,
        "`every_steps` (50) must be a multiple of the RunConfig's `save_checkpoints_steps` (30) "
        "... RunConfig(save_checkpoints_steps=50)",
    ),
    "every_steps with checkpoints by time": (
        lambda s: _run(s, eval_spec=_eval_spec(every_steps=50)),
        ValueError,
        "`every_steps` (50) must be a multiple of the RunConfig's `save_checkpoints_steps` (None)",
    ),
    "train and evaluate in a cluster": (
        lambda s: _run(s, config=_task("worker")),
        ValueError,
        "`TF_CONFIG` names 1 chief, 1 worker, but the strategy (None) trains in one process. Pass "
        'RunConfig(strategy="multi_worker_mirrored"), or unset TF_CONFIG.',
    ),
}

EXPORTERS = {
    "the name of an exporter is a number": (
        lambda s: _latest(7),
        TypeError,
        "`name` (7) must be a string",
    ),
    "the name of an exporter is empty": (
        lambda s: _latest(""),
        ValueError,
        "`name` ('') must name a directory inside `<model_dir>/export`",
    ),
    "the name of an exporter is a pattern of names": (
        lambda s: _latest("best[1]"),
        ValueError,
        "`name` ('best[1]') must not contain [: TensorFlow takes",
    ),
    "the name of an exporter leads out": (
        lambda s: _latest("../../elsewhere"),
        ValueError,
        "`name` ('../../elsewhere') must name a directory inside `<model_dir>/export`",
    ),
    "the serving function of an exporter takes arguments": (
        lambda s: _latest(receiver_fn=lambda params: None),
        TypeError,
        "`serving_input_receiver_fn` takes arguments (params) ... Bind them",
    ),
    "the serving function of an exporter is missing": (
        lambda s: est.BestExporter("best"),
        TypeError,
        "`serving_input_receiver_fn` (None) must be a function",
    ),
    "the final exporter gets a receiver": (
        lambda s: est.FinalExporter("final", "receiver"),
        TypeError,
        "`serving_input_receiver_fn` ('receiver') must be a function",
    ),
    "an extra asset of an exporter is no path": (
        lambda s: _latest(assets_extra={"words": 7}),
        ValueError,
        "`assets_extra['words']` (7) must be the path of a file that exists",
    ),
    "an extra asset is where the record is": (
        lambda s: _latest(assets_extra={"exporter.json": s.file}),
        ValueError,
        "`assets_extra` has the destination 'exporter.json', where the exporter keeps its record",
    ),
    "the exports_to_keep are zero": (
        lambda s: _latest(exports_to_keep=0),
        ValueError,
        "`exports_to_keep` (0) must be at least 1; None keeps all",
    ),
    "the exports_to_keep are a float": (
        lambda s: _latest(exports_to_keep=2.0),
        TypeError,
        "`exports_to_keep` (2.0) must be an integer",
    ),
    "the compare_fn is a metric": (
        lambda s: _best(compare_fn="accuracy"),
        TypeError,
        "`compare_fn` ('accuracy') must be a function that takes best_eval_result and "
        "current_eval_result",
    ),
    "the compare_fn has other arguments": (
        lambda s: _best(compare_fn=lambda best, current: True),
        ValueError,
        "`compare_fn` must be a function that takes best_eval_result and current_eval_result ... "
        "it takes (best, current)",
    ),
    "the event_file_pattern is a list": (
        lambda s: _best(event_file_pattern=["eval"]),
        TypeError,
        "`event_file_pattern` (['eval']) must be a pattern of paths",
    ),
}

EARLY_STOPPING = {
    "early stopping of no estimator": (
        lambda s: est.experimental.make_early_stopping_hook("model", lambda: True),
        TypeError,
        "`estimator` ('model') must be an estimator.Estimator",
    ),
    "the should_stop_fn is a bool": (
        lambda s: _early(s, True),
        TypeError,
        "`should_stop_fn` (True) must be a function of no arguments",
    ),
    "the should_stop_fn is a built-in": (
        lambda s: _early(s, dict),
        TypeError,
        "`should_stop_fn` (<class 'dict'>) is compiled code, of which Python",
    ),
    "the should_stop_fn takes an argument": (
        lambda s: _early(s, lambda step: True),
        TypeError,
        "`should_stop_fn` takes arguments (step), but it is called with none. Bind them",
    ),
    "both intervals of early stopping": (
        lambda s: _early(s, run_every_steps=10),
        ValueError,
        "Exactly one of `run_every_secs` (60) and `run_every_steps` (10) must be given. For steps, "
        "pass `run_every_secs=None` too",
    ),
    "no interval of early stopping": (
        lambda s: _early(s, run_every_secs=None),
        ValueError,
        "Exactly one of `run_every_secs` (None) and `run_every_steps` (None) must be given",
    ),
    "the run_every_secs are negative": (
        lambda s: _early(s, run_every_secs=-1),
        ValueError,
        "`run_every_secs` (-1) must be at least 0",
    ),
    "the run_every_steps are zero": (
        lambda s: _no_decrease(s, run_every_secs=None, run_every_steps=0),
        ValueError,
        "`run_every_steps` (0) must be at least 1",
    ),
    "the metric_name is missing": (
        lambda s: _no_decrease(s, None),
        TypeError,
        "`metric_name` (None) must be the name of a metric",
    ),
    "the patience is a float": (
        lambda s: _no_decrease(s, steps=2.5),
        TypeError,
        "`max_steps_without_decrease` (2.5) must be an integer",
    ),
    "the patience is negative": (
        lambda s: est.experimental.stop_if_no_increase_hook(s.model(), "loss", -1),
        ValueError,
        "`max_steps_without_increase` (-1) must be at least 0",
    ),
    "the threshold is a string": (
        lambda s: est.experimental.stop_if_higher_hook(s.model(), "loss", "0.9"),
        TypeError,
        "`threshold` ('0.9') must be a number",
    ),
    "the threshold is NaN": (
        lambda s: est.experimental.stop_if_lower_hook(s.model(), "loss", float("nan")),
        ValueError,
        "`threshold` (nan) must be a number that others can be compared with",
    ),
    "the eval_dir is a number": (
        lambda s: _no_decrease(s, eval_dir=3),
        TypeError,
        "`eval_dir` (3) must be a path, or None",
    ),
    "the min_steps are negative": (
        lambda s: _no_decrease(s, min_steps=-1),
        ValueError,
        "`min_steps` (-1) must be at least 0",
    ),
    "the last_step is zero": (
        lambda s: est.experimental.make_stop_at_checkpoint_step_hook(s.model(), 0),
        ValueError,
        "`last_step` (0) must be at least 1",
    ),
    "the wait for a checkpoint is negative": (
        lambda s: est.experimental.make_stop_at_checkpoint_step_hook(s.model(), 5, -1),
        ValueError,
        "`wait_after_file_check_secs` (-1) must be at least 0",
    ),
}

IN_MEMORY = {
    "an in-memory evaluation of no estimator": (
        lambda s: est.experimental.InMemoryEvaluatorHook(None, batches()),
        TypeError,
        "`estimator` (None) must be an estimator.Estimator",
    ),
    "the input of an in-memory evaluation is a dataset": (
        lambda s: _in_memory(s, batches()()),
        TypeError,
        "`input_fn` (<_BatchDataset ... must be a function",
    ),
    "the steps of an in-memory evaluation are zero": (
        lambda s: _in_memory(s, steps=0),
        ValueError,
        "`steps` (0) must be at least 1",
    ),
    "the hooks of an in-memory evaluation are a string": (
        lambda s: _in_memory(s, hooks="all"),
        TypeError,
        "`hooks` ('all') must be a list of SessionRunHooks",
    ),
    "the name of an in-memory evaluation leads out": (
        lambda s: _in_memory(s, name="../other"),
        ValueError,
        "`name` ('../other') must not lead out of `model_dir`",
    ),
    "every_n_iter is zero": (
        lambda s: _in_memory(s, every_n_iter=0),
        ValueError,
        "`every_n_iter` (0) must be at least 1",
    ),
    "an in-memory evaluation in a cluster": (
        lambda s: est.experimental.InMemoryEvaluatorHook(s.model(config=_task("chief")), batches()),
        ValueError,
        "InMemoryEvaluatorHook needs a training on one machine, and TF_CONFIG describes a cluster",
    ),
}
