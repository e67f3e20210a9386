"""`Estimator` and `TPUEstimator`: each verb resolves, builds and runs, in a few lines."""

from __future__ import annotations

import functools
import logging
import os
import reprlib
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from estimator import arguments, smoke
from estimator.checkpoint import files
from estimator.checkpoint.in_memory import State
from estimator.checkpoint.old_model import OldModel, find_checkpoint, find_old_model
from estimator.checkpoint.writer import build_saver
from estimator.config.checks import check_bool, check_choice
from estimator.config.cluster import EVALUATOR
from estimator.config.frozen import call_in_words, show
from estimator.config.loop import parse_loop_length
from estimator.config.run_config import InputPipelineConfig, RunConfig
from estimator.config.strategy import (
    check_fits_cluster,
    make_no_strategy,
    make_session_config,
    make_strategy,
)
from estimator.config.tpu import check_trainable, is_tpu
from estimator.config.warm_start import WarmStartSettings, checked_warm_start
from estimator.console import no_internal_deprecations, say
from estimator.explain import Facts, explain
from estimator.export.receivers import checked_receiver_fn
from estimator.graph import program as programs
from estimator.graph.dealing import build_pipeline, num_batches_a_step
from estimator.graph.exported import build_export_program
from estimator.graph.input import Input, build_input, check_input_fn, is_same_input
from estimator.graph.model import Model, check_model_fn
from estimator.graph.padded import build_padded_eval_program, build_padded_predict_program
from estimator.graph.placement import make_device_fn
from estimator.graph.step import training_hooks
from estimator.graph.workers import num_local_replicas, workers_of
from estimator.session.export import run_export
from estimator.session.hooks import Hook, check_hooks
from estimator.session.host_input import HostInput
from estimator.session.open import build_setup
from estimator.session.request import TrainRequest, TrainResult
from estimator.session.server import Connection, connect, connect_to_existing
from estimator.session.train import run_train
from estimator.session.warm import WarmSession, run_evaluation
from estimator.spec import ModeKeys
from estimator.summary.metrics_log import MetricsLog, metrics_in_words
from estimator.summary.writer import EventWriter, close_event_files

_log = logging.getLogger("estimator")
_VERBS = ("train", "evaluate", "predict", "export_saved_model")


class Estimator:
    """Trains, evaluates, predicts with and exports the model that a `model_fn` describes.

    `evaluate` and `predict` keep their graph and session; `close`, or leaving a `with` block,
    frees them, and so does dropping the object.
    """

    def __init__(
        self,
        model_fn: Callable,
        model_dir: str | os.PathLike | None = None,
        config: RunConfig | None = None,
        params: Mapping[str, Any] | None = None,
        warm_start_from: str | bytes | os.PathLike | WarmStartSettings | None = None,
    ) -> None:
        """Checks its arguments; builds nothing and writes nothing.

        Args:
          model_fn: returns an EstimatorSpec. It takes any of `features`, `labels`, `mode`,
            `params`, `config`.
          model_dir: for checkpoints and event files; else the config's, else a temporary one.
          config: how to run; the default RunConfig if None.
          params: passed on to `model_fn` and `input_fn`.
          warm_start_from: where first values come from if `train` finds no checkpoint in
            `model_dir`: WarmStartSettings, or for all trainable variables the path of a
            checkpoint, of a directory of checkpoints, or of a SavedModel. Read only then.

        Raises:
          TypeError, ValueError: an argument is wrong.
        """
        self._assert_members_are_not_overridden()
        check_model_fn(model_fn)
        arguments.check_params(params)
        self._config = arguments.checked_config(config)
        self._warm_start = checked_warm_start(warm_start_from)
        self._model_dir = arguments.checked_model_dir(model_dir, self._config.model_dir)
        self._trained_dirs = [self._model_dir] if self._model_dir is not None else []
        if self._config.smoke:
            self._model_dir = smoke.make_scratch_dir(self)
            self._config = smoke.make_config(self._config, self._model_dir)
        elif self._model_dir is None:
            self._model_dir = tempfile.mkdtemp()
            _log.warning("No `model_dir` is given; using the temporary %s", self._model_dir)
        self._config = self._config.replace(model_dir=self._model_dir)
        self._model_fn = model_fn
        self._params = dict(params or {})
        self._batch_axis: Sequence[int] | None = None
        self._warm: dict[str, WarmSession] = {}
        self._event_dirs = {self.model_dir}
        weakref.finalize(self, close_event_files, self._event_dirs)
        self._last_input_fn: Callable | None = None
        self._trained_on: Any = None
        self._train_result: TrainResult | None = None

    # What it is.

    @property
    def model_fn(self) -> Callable:
        """The model function with `params` bound to it: `model_fn(features, labels, mode, config)`.

        For a model_fn around it. It takes all four, whatever the function that it calls takes.
        """

        def model_fn(features: Any, labels: Any, mode: str, config: Any) -> Any:
            params = self._params_for(mode, make_strategy(self._config, mode))
            model = Model(self._model_fn, params, config)
            return model.call(features, labels, mode)

        return model_fn

    @property
    def model_dir(self) -> str:
        """Where checkpoints and event files are."""
        return str(self._model_dir)

    @property
    def config(self) -> RunConfig:
        """How it runs, with the `model_dir` filled in."""
        return self._config

    @property
    def params(self) -> dict[str, Any]:
        """A copy of what `model_fn` and `input_fn` are given."""
        return dict(self._params)

    @property
    def train_result(self) -> TrainResult | None:
        """Where the last `train` ended and why; None before the first."""
        return self._train_result

    def eval_dir(self, name: str | None = None) -> str:
        """Where the event file of an evaluation of that name is."""
        return os.path.join(self.model_dir, "eval" if not name else f"eval_{name}")

    def latest_checkpoint(self) -> str | None:
        """The newest whole checkpoint in `model_dir`, None if there is none."""
        return files.latest_checkpoint(self.model_dir)

    def get_variable_names(self) -> list[str]:
        """The names in the newest checkpoint."""
        return [name for name, _ in tf.train.list_variables(self._existing_checkpoints(None)[0])]

    def get_variable_value(self, name: str) -> np.ndarray:
        """The value of a variable in the newest checkpoint."""
        check_choice("name", name, self.get_variable_names())
        return tf.train.load_variable(self._existing_checkpoints(None)[0], name)

    def explain(self, *, steps: int | None = None, max_steps: int | None = None) -> None:
        """Prints what the verbs will do: where they run, on which batches, what is written when.

        Nothing is built and nothing is written.

        Args:
          steps: as for `train`.
          max_steps: likewise.

        Raises:
          TypeError, ValueError: an argument is wrong, or the strategy cannot be made.
        """
        arguments.check_steps(steps, max_steps)
        facts = self._facts()
        if self._config.smoke:
            start = files.checkpoint_step(facts.checkpoint) if facts.checkpoint else 0
            steps, max_steps = smoke.limit_training(steps, max_steps, start or 0)
        print(explain(facts, steps, max_steps))

    def __repr__(self) -> str:
        """What matters, on a few lines."""
        return call_in_words(type(self).__name__, self._shown())

    # The verbs.

    @no_internal_deprecations()
    def train(
        self,
        input_fn: Callable,
        hooks: Sequence[Hook] | None = None,
        steps: int | None = None,
        max_steps: int | None = None,
        saving_listeners: Sequence[tf.compat.v1.train.CheckpointSaverListener] | None = None,
    ) -> Estimator:
        """Trains, going on from the newest checkpoint and from where the input stood at it.

        Args:
          input_fn: returns a tf.data.Dataset of (features, labels), or the tensors themselves. It
            takes any of `params`, `mode`, `config`, `input_context`. Called once; each replica
            takes its next batch.
          hooks: called around each session call, which is a loop of steps.
          steps: how many more.
          max_steps: the global step to stop at; excludes `steps`. With neither, the input's end.
          saving_listeners: told of every checkpoint.

        Returns:
          Itself; `train_result` says where it stopped and why.

        Raises:
          tf.compat.v1.train.NanLossDuringTrainingError: by default, if the loss is not finite.
          KeyboardInterrupt: on SIGINT, after the loop that runs has ended and its step is saved.
          SystemExit: on SIGTERM likewise; the code is 143.
          ValueError: an argument is wrong, or what `warm_start_from` names is not there or does
            not fit the model.
        """
        check_input_fn(input_fn)
        all_hooks = check_hooks(hooks)
        listeners = arguments.checked_listeners(saving_listeners)
        arguments.check_steps(steps, max_steps)
        found = files.checkpoints_newest_first(self.model_dir)
        start = files.checkpoint_step(found[0]) if found else 0
        if self._config.smoke:
            steps, max_steps = smoke.limit_training(steps, max_steps, start or 0)
        if max_steps is not None and start is not None and start >= max_steps:
            _log.warning(
                "Nothing to train: the global step is %d, and `max_steps` is %d.", start, max_steps
            )
            self._train_result = TrainResult(start, None, "max_steps")
            return self
        arguments.check_writable(self.model_dir)
        old_model = self._old_model(found)
        strategy = make_strategy(self._config, ModeKeys.TRAIN)
        check_trainable(self._config, strategy)
        check_fits_cluster(self._config, strategy)
        session_config = make_session_config(self._config, strategy)
        connection = connect(strategy, self._config, session_config)
        program = programs.build_train_program(
            self._model_in(ModeKeys.TRAIN, strategy),
            lambda: self._build_input(input_fn, ModeKeys.TRAIN, strategy),
            strategy,
            iterations_per_loop=parse_loop_length(self._config.iterations_per_loop).steps,
            nan_policy=self._config.nan_policy,
            host_call_steps=self._host_call_steps(),
            seed=self._config.tf_random_seed,
            device_fn=self._device_fn(strategy),
        )
        arguments.check_window(program.window, self._config)
        self._trained_on = program.input.element[0]
        request = TrainRequest(
            config=self._config,
            session_config=session_config,
            steps=steps,
            max_steps=max_steps,
            hooks=[*all_hooks, *training_hooks(program.spec, self._is_chief(strategy))],
            listeners=listeners,
            is_same_input=self._is_same_input(input_fn),
            old_model=old_model,
            connection=connection,
            equal={"the number of replicas": strategy.num_replicas_in_sync},
            batch=self._batch_in_words(ModeKeys.TRAIN, strategy),
        )
        self._train_result = run_train(program, request)
        return self

    @no_internal_deprecations()
    def evaluate(
        self,
        input_fn: Callable,
        steps: int | None = None,
        hooks: Sequence[Hook] | None = None,
        checkpoint_path: str | None = None,
        name: str | None = None,
    ) -> dict[str, Any]:
        """Evaluates a checkpoint on every example of the input, each exactly once.

        Args:
          input_fn: as for `train`.
          steps: at most this many global batches; None for all.
          hooks: called around each batch.
          checkpoint_path: the newest if None.
          name: of the evaluation, for its directory; see `eval_dir`.

        Returns:
          The metrics by name, "loss" and "global_step".

        Raises:
          ValueError: there is no checkpoint, or the input is empty or never ends.
        """
        check_input_fn(input_fn)
        all_hooks = check_hooks(hooks)
        arguments.check_positive("steps", steps)
        arguments.check_name(name)
        paths = self._existing_checkpoints(checkpoint_path)
        return self._evaluate(input_fn, steps, all_hooks, name, lambda warm: warm.restore(paths))

    @no_internal_deprecations()
    def evaluate_state(
        self,
        state: State,
        input_fn: Callable,
        steps: int | None = None,
        hooks: Sequence[Hook] | None = None,
        name: str | None = None,
    ) -> dict[str, Any]:
        """`evaluate` of weights that are in no checkpoint; InMemoryEvaluatorHook calls it.

        Args:
          state: what `estimator.checkpoint.in_memory.read_state` read.
          input_fn: as for `evaluate`, like all that follow.
          steps: see there.
          hooks: see there.
          name: see there.

        Returns:
          As `evaluate`.

        Raises:
          ValueError: `state` lacks a variable; and as `evaluate`.
        """
        all_hooks = check_hooks(hooks)
        return self._evaluate(input_fn, steps, all_hooks, name, lambda warm: warm.load(state))

    @no_internal_deprecations()
    def predict(
        self,
        input_fn: Callable,
        predict_keys: str | Sequence[str] | None = None,
        hooks: Sequence[Hook] | None = None,
        checkpoint_path: str | None = None,
        yield_single_examples: bool = True,
    ) -> Iterator[Any]:
        """Yields predictions, one for each example of the input, in its order.

        Args:
          input_fn: as for `train`; labels are ignored.
          predict_keys: which of a dict of predictions; None for all.
          hooks: called around each batch.
          checkpoint_path: the newest if None.
          yield_single_examples: yield an example at a time; else batches as they come.

        Returns:
          A generator; arguments are checked and weights restored when this is called.

        Raises:
          ValueError: there is no checkpoint, `predict_keys` names none of the predictions, or
            they differ in their first dimension and examples are asked for.
        """
        check_input_fn(input_fn)
        all_hooks = check_hooks(hooks)
        arguments.check_predict_keys(predict_keys)
        paths = self._existing_checkpoints(checkpoint_path)
        warm, host_input = self._warm_session(ModeKeys.PREDICT, input_fn, paths)
        assert isinstance(warm.program, programs.PredictProgram)
        keys = arguments.checked_predict_keys(predict_keys, warm.program.predictions[0])
        is_told = warm.has_weights_of(paths[0])
        path = warm.restore(paths)
        if not is_told and is_telling(self._config):
            say("Predicting with %s", path)
        spec_hooks = warm.program.spec.prediction_hooks or ()
        predictions = warm.predict(host_input, keys, [*all_hooks, *spec_hooks])
        return rows(predictions) if yield_single_examples else predictions

    @no_internal_deprecations()
    def export_saved_model(
        self,
        export_dir_base: str,
        serving_input_receiver_fn: Callable,
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        checkpoint_path: str | None = None,
        experimental_mode: str = ModeKeys.PREDICT,
    ) -> bytes:
        """Writes a SavedModel into a new numbered directory.

        Args:
          export_dir_base: the directory appears in it, whole or not at all.
          serving_input_receiver_fn: returns a ServingInputReceiver; in EVAL and TRAIN what
            `build_raw_supervised_input_receiver_fn` returns one that has labels too.
          assets_extra: files to copy into `assets.extra`: destination there -> source path.
          as_text: write the graph as text.
          checkpoint_path: the newest if None, or what `warm_start_from` names if there is none.
          experimental_mode: what the graph is built for: PREDICT, with the tag "serve" and a
            signature for each of `export_outputs`; EVAL or TRAIN, with the tag and the one
            signature "eval" or "train", of loss, predictions and metrics.

        Returns:
          The path of the directory, as bytes.

        Raises:
          TypeError, ValueError: there is no checkpoint, or an argument is wrong.
        """
        arguments.check_mode_to_export("experimental_mode", experimental_mode)
        return self._export(
            export_dir_base,
            {experimental_mode: ("serving_input_receiver_fn", serving_input_receiver_fn)},
            assets_extra,
            as_text,
            checkpoint_path,
        )

    def experimental_export_all_saved_models(
        self,
        export_dir_base: str,
        input_receiver_fn_map: Mapping[str, Callable],
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        checkpoint_path: str | None = None,
    ) -> bytes:
        """Writes one SavedModel with a graph for each of several modes, which share the variables.

        Args:
          export_dir_base: as for `export_saved_model`, like all but the next.
          input_receiver_fn_map: a `ModeKeys` to the function that returns its input receiver.
          assets_extra: see there.
          as_text: see there.
          checkpoint_path: see there.

        Returns:
          The path of the directory, as bytes.

        Raises:
          TypeError, ValueError: as `export_saved_model`, or a mode has variables that are neither
            in TRAIN nor in the first of EVAL and PREDICT.
        """
        return self._export(
            export_dir_base,
            arguments.checked_receiver_fns(input_receiver_fn_map),
            assets_extra,
            as_text,
            checkpoint_path,
        )

    def export_savedmodel(
        self,
        export_dir_base: str,
        serving_input_receiver_fn: Callable,
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        checkpoint_path: str | None = None,
        strip_default_attrs: bool = False,
    ) -> bytes:
        """`export_saved_model` for serving, as `tf.compat.v1.estimator` called it.

        Args:
          export_dir_base: as there.
          serving_input_receiver_fn: as there.
          assets_extra: as there.
          as_text: as there.
          checkpoint_path: as there.
          strip_default_attrs: leave out of the graph what is a default, so that older versions of
            TensorFlow read it; `export_saved_model` does.
        """
        check_bool("strip_default_attrs", strip_default_attrs)
        return self._export(
            export_dir_base,
            {ModeKeys.PREDICT: ("serving_input_receiver_fn", serving_input_receiver_fn)},
            assets_extra,
            as_text,
            checkpoint_path,
            strip_default_attrs,
        )

    def with_model_fn(self, model_fn: Callable) -> Estimator:
        """Another estimator of the same `model_dir`, `config` and `params`; see `add_metrics`."""
        return Estimator(model_fn, self.model_dir, self._config, self._params)

    def close(self) -> None:
        """Frees the graphs and sessions that `evaluate` and `predict` keep; closes event files."""
        for warm in self._warm.values():
            warm.close()
        self._warm.clear()
        close_event_files(self._event_dirs)

    def __enter__(self) -> Estimator:
        """Itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Closes."""
        self.close()

    # Inside.

    def _assert_members_are_not_overridden(self) -> None:
        """Raises if a subclass overrides a verb. Programs that mean to override this, as ever."""
        arguments.check_overrides(type(self), Estimator)

    def _evaluate(
        self,
        input_fn: Callable,
        steps: int | None,
        hooks: list[Hook],
        name: str | None,
        set_weights: Callable[[WarmSession], str],
    ) -> dict[str, Any]:
        """Evaluates the weights that `set_weights` gives to the session; it returns their name."""
        warm, host_input = self._warm_session(ModeKeys.EVAL, input_fn, [])
        what = set_weights(warm)
        hooks = [*hooks, *(warm.program.spec.evaluation_hooks or ())]
        results = run_evaluation(warm, host_input, steps, hooks)
        results["global_step"] = warm.global_step()
        self._event_dirs.add(self.eval_dir(name))
        EventWriter(self.eval_dir(name)).write_metrics(
            {k: v for k, v in results.items() if k != "global_step"}, results["global_step"]
        )
        if is_telling(self._config):
            MetricsLog(self.model_dir).write_eval(name, results["global_step"], results)
            what = f"{what} ({name})" if name else what
            say("Evaluated %s: %s", what, metrics_in_words(results))
        return results

    def _model_in(
        self, mode: str, strategy: tf.distribute.Strategy, is_export: bool = False
    ) -> Model:
        params = self._export_params_for(mode) if is_export else self._params_for(mode, strategy)
        return Model(self._model_fn, params, self._config, self._trained_on)

    def _params_for(self, mode: str, strategy: tf.distribute.Strategy) -> dict[str, Any]:
        """What `model_fn` gets as `params` in this mode."""
        del mode, strategy
        return dict(self._params)

    def _batch_in_words(self, mode: str, strategy: tf.distribute.Strategy) -> str:
        """How many examples the replicas take at a time; "" if that was not said."""
        del mode, strategy
        return ""

    def _shown(self) -> dict[str, str]:
        """The arguments that matter, in words."""
        shown = {"model_fn": show(self._model_fn), "config": repr(self._config)}
        return {**shown, "params": reprlib.repr(self._params)} if self._params else shown

    def _facts(self) -> Facts:
        modes = (ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT)
        old = self._warm_start
        return Facts(
            title=f"{type(self).__name__} of {show(self._model_fn)} in {self.model_dir}",
            config=self._config,
            batches={m: self._batch_in_words(m, make_strategy(self._config, m)) for m in modes},
            checkpoint=self.latest_checkpoint(),
            warm_start=None if old is None else str(old.ckpt_to_initialize_from),
            eval_dir=self.eval_dir(),
        )

    def _export_params_for(self, mode: str) -> dict[str, Any]:
        """What `model_fn` gets when it is exported."""
        return self._params_for(mode, make_no_strategy())

    def _input_params_for(
        self, mode: str, strategy: tf.distribute.Strategy, input_context: tf.distribute.InputContext
    ) -> dict[str, Any]:
        """What this call of `input_fn` gets, where that is not the same."""
        del input_context
        return self._params_for(mode, strategy)

    def _pipeline(self, mode: str) -> int:
        """Which `InputPipelineConfig` holds in this mode."""
        del mode
        return InputPipelineConfig.PER_HOST_V1

    def _host_call_steps(self) -> int:
        """How many steps from one `host_call` to the next."""
        return 1

    def _build_input(
        self, input_fn: Callable, mode: str, strategy: tf.distribute.Strategy
    ) -> Input:
        num_replicas = num_local_replicas(strategy)
        workers = workers_of(strategy)
        num_pipelines, pipeline = workers.count, workers.index
        if mode == ModeKeys.TRAIN and self._config.num_ps_replicas:
            num_pipelines = self._config.num_worker_replicas
            pipeline = self._config.global_id_in_cluster or 0
        kind = self._pipeline(mode)
        if mode != ModeKeys.TRAIN:  # Its batches are dealt out, and cut, when they are fed.
            kind = InputPipelineConfig.PER_HOST_V1

        def build(index: int, num_calls: int) -> Input:
            input_context = tf.distribute.InputContext(
                num_pipelines * num_calls,
                pipeline * num_calls + index,
                strategy.num_replicas_in_sync,
            )
            return build_input(
                input_fn,
                mode=mode,
                params=self._input_params_for(mode, strategy, input_context),
                config=self._config,
                input_context=input_context,
                lookahead=num_batches_a_step(kind, num_replicas) if workers.count > 1 else None,
            )

        return build_pipeline(build, kind, num_replicas, self._batch_axis)

    def _is_chief(self, strategy: tf.distribute.Strategy) -> bool:
        """Whether this process writes what training under the strategy leaves."""
        if self._config.num_ps_replicas:
            return self._config.is_chief
        return workers_of(strategy).is_chief

    def _device_fn(self, strategy: tf.distribute.Strategy) -> Callable | None:
        """What puts variables on ps tasks, if nobody else does."""
        has_strategy = self._config.train_distribute is not None
        places_itself = has_strategy or strategy.num_replicas_in_sync > 1
        if not self._config.num_ps_replicas or self._config.device_fn is not None or places_itself:
            return None
        return make_device_fn(self._config.cluster, self._config.ps_placement)

    def _is_same_input(self, input_fn: Callable) -> bool:
        """Whether the last `train` of this process, if there was one, had the same input."""
        last, self._last_input_fn = self._last_input_fn, input_fn
        return last is None or is_same_input(last, input_fn)

    def _old_model(self, found: Sequence[str]) -> OldModel | None:
        """What training starts from if there is no checkpoint; None if nothing, or if there is."""
        if self._warm_start is None:
            return None
        if found:
            say("`warm_start_from` is not used: training goes on from %s.", found[0])
            return None
        return find_old_model(self._warm_start)

    def _export(
        self,
        export_dir_base: str,
        receiver_fns: Mapping[str, tuple[str, Callable]],
        assets_extra: Mapping[str, str] | None,
        as_text: bool,
        checkpoint_path: str | None,
        strip_default_attrs: bool = True,
    ) -> bytes:
        """Exports a graph for each mode; `receiver_fns` has what the user calls each function."""
        arguments.check_export(export_dir_base, receiver_fns.values(), assets_extra, as_text)
        if self._config.smoke:
            export_dir_base = smoke.make_export_dir(export_dir_base, self.model_dir)
        paths = self._checkpoints_to_export(checkpoint_path)
        strategy = make_no_strategy()  # A SavedModel runs on whatever loads it.
        in_order = [mode for mode in arguments.MODES_TO_EXPORT if mode in receiver_fns]
        return run_export(
            [
                build_export_program(
                    self._model_in(mode, strategy, is_export=True),
                    checked_receiver_fn(receiver_fns[mode][1], receiver_fns[mode][0], mode),
                    strategy,
                    mode,
                    self._config.tf_random_seed,
                )
                for mode in in_order
            ],
            export_dir_base,
            paths,
            session_config=make_session_config(self._config, strategy),
            assets_extra=assets_extra,
            as_text=as_text,
            strip_default_attrs=strip_default_attrs,
        )

    def _checkpoints_to_export(self, checkpoint_path: str | None) -> list[str]:
        if checkpoint_path is None and self._warm_start is not None:
            found = files.checkpoints_newest_first(self.model_dir)
            return found or [find_checkpoint(str(self._warm_start.ckpt_to_initialize_from))]
        return self._existing_checkpoints(checkpoint_path)

    def _existing_checkpoints(self, checkpoint_path: str | None) -> list[str]:
        if checkpoint_path is not None:
            return [files.checked_checkpoint(checkpoint_path)]
        paths = files.checkpoints_newest_first(self.model_dir)
        if not paths and self._config.smoke:
            paths = [p for d in self._trained_dirs for p in files.checkpoints_newest_first(d)]
        if not paths:
            raise ValueError(
                f"There is no checkpoint in `model_dir` ({self.model_dir}). Call `train` first, or "
                "pass a `checkpoint_path`."
            )
        return paths

    def _warm_session(
        self, mode: str, input_fn: Callable, paths: Sequence[str]
    ) -> tuple[WarmSession, HostInput]:
        """The mode's session, free to restore one of `paths`, and this call's input."""
        strategy = make_strategy(self._config, mode)
        num_replicas = strategy.num_replicas_in_sync
        host_input = HostInput(
            lambda: self._build_input(input_fn, mode, strategy),
            self._config.tf_random_seed,
            has_labels=mode == ModeKeys.EVAL,
            num_slices=num_replicas if self._pipeline(mode) == InputPipelineConfig.SLICED else 1,
            batch_axis=self._batch_axis,
            max_batches=smoke.STEPS * num_replicas if self._config.smoke else None,
        )
        old = warm = self._warm.get(mode)
        if warm is None or warm.key != host_input.key or warm.is_lost:
            warm = self._open_warm(mode, host_input, strategy)
        elif warm.is_predicting and not warm.has_weights_of(paths[0]):
            warm = warm.twin()
        if old is not None and warm is not old and not old.is_predicting:
            old.close()  # Else its predictions keep it until they end.
        self._warm[mode] = warm
        return warm, host_input

    def _open_warm(
        self, mode: str, host_input: HostInput, strategy: tf.distribute.Strategy
    ) -> WarmSession:
        session_config = make_session_config(self._config, strategy)
        connection = Connection()
        if not is_tpu(strategy):
            connection = connect_to_existing(self._config, mode, session_config) or connection
        model = self._model_in(mode, strategy)
        build = _program_builder(mode, strategy, model.params.get("batch_size"))
        program = build(model, host_input.element, strategy, self._config.tf_random_seed)
        with strategy.scope():
            setup = build_setup(
                program.graph,
                program.spec.scaffold,
                build_saver,
                session_config,
                is_evaluation=mode == ModeKeys.EVAL,
            )
        timeout_secs = self._config.session_creation_timeout_secs
        return WarmSession(program, setup, host_input.key, connection, timeout_secs)


def _program_builder(
    mode: str, strategy: tf.distribute.Strategy, batch_size: int | None
) -> Callable[..., programs.EvalProgram | programs.PredictProgram]:
    """What builds the program of an evaluation or a prediction under this strategy."""
    is_eval = mode == ModeKeys.EVAL
    if is_tpu(strategy):
        build = build_padded_eval_program if is_eval else build_padded_predict_program
        return functools.partial(build, batch_size=batch_size)
    return programs.build_eval_program if is_eval else programs.build_predict_program


def is_telling(config: RunConfig) -> bool:
    """Whether this task of a cluster, or the only one, says what it evaluates and predicts with."""
    return config.is_chief or config.task_type == EVALUATOR


def rows(batches: Iterator[Any]) -> Iterator[Any]:
    """Takes batches of predictions apart into examples."""
    for batch in batches:
        arguments.check_first_dimensions(batch)
        if not isinstance(batch, Mapping):
            yield from batch
            continue
        keys = list(batch)
        columns = zip(*batch.values(), strict=True)
        yield from [dict(zip(keys, row, strict=True)) for row in columns]
