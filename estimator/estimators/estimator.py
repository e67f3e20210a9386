"""The `Estimator` class: each method checks its arguments, builds a program and runs it."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import os
import reprlib
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from estimator.checkpoint import files
from estimator.checkpoint.errors import CheckpointError
from estimator.checkpoint.memory_checkpoint import State
from estimator.cluster.server import Connection
from estimator.config.checks import check_bool, check_name, checked_limit, did_you_mean
from estimator.config.frozen import call_in_words, show
from estimator.config.run_config import RunConfig
from estimator.config.warm_start_settings import WarmStartSettings, checked_warm_start
from estimator.console import log, no_internal_messages
from estimator.estimators import arguments, export_setup, smoke, train_setup
from estimator.estimators.batches import Batches
from estimator.estimators.evaluation_setup import WarmSessions, make_host_input
from estimator.estimators.explain import Facts, explain
from estimator.estimators.old_methods import (
    OldMethods,
    calling_input_fn,
    calling_model_fn,
    check_old_methods,
    overrides,
)
from estimator.estimators.results import rows, say_what_predicts, write_evaluation
from estimator.evaluation.batch_runs import run_evaluation, run_prediction
from estimator.evaluation.host_input import HostInput
from estimator.evaluation.warm_session import WarmSession, Weights
from estimator.export.export_session import opened_export
from estimator.export.saved_model import write_saved_models
from estimator.input.input_calls import check_input_fn
from estimator.input.same_input import is_same_input
from estimator.model.outside_values import OutsideValues
from estimator.model.replicas import Model, check_model_fn, check_takes_params
from estimator.program.programs import PredictProgram
from estimator.program.stack_room import with_stack_room
from estimator.runtime.local import make_plain_runtime
from estimator.runtime.strategy import check_task_trains, make_runtime, make_training_runtime
from estimator.session.hooked_session import Hook, check_hooks
from estimator.session.retries import retried
from estimator.spec import ModeKeys
from estimator.summary.event_writer import close_collected_event_files, close_event_files
from estimator.training.request import (
    TrainRequest,
    TrainResult,
    training_hooks,
    warn_of_no_steps,
)
from estimator.training.training import run_train


class Estimator(OldMethods):
    """Trains, evaluates, predicts with and exports the model that a `model_fn` describes.

    `evaluate` and `predict` keep their graph and session for further calls. `close`, leaving a
    `with` block, or dropping the object frees them.
    """

    def __init__(
        self,
        model_fn: Callable,
        model_dir: str | os.PathLike | None = None,
        config: RunConfig | None = None,
        params: Any = None,
        warm_start_from: str | bytes | os.PathLike | WarmStartSettings | None = None,
    ) -> None:
        """Checks its arguments; builds nothing and writes nothing.

        Args:
          model_fn: returns an EstimatorSpec. It takes any of `features`, `labels`, `mode`,
            `params`, `config`.
          model_dir: the directory for checkpoints and event files; by default the config's, or a
            temporary directory.
          config: how to run; None for the default RunConfig.
          params: a dict, or any object; each call of `model_fn` and `input_fn` gets a deep copy.
          warm_start_from: the source of initial values if there is no checkpoint in `model_dir`:
            WarmStartSettings, or, to load all trainable variables, the path of a checkpoint, of a
            directory of checkpoints, or of a SavedModel. Read only when it is needed.

        Raises:
          TypeError, ValueError: an argument is invalid.
        """
        # Some programs override it with a staticmethod that takes the estimator.
        type(self)._assert_members_are_not_overridden(self)  # noqa: SLF001  (of its own class)
        check_old_methods(self)
        check_model_fn(model_fn)
        check_takes_params(model_fn, params)
        self._config = arguments.checked_config(config)
        self._warm_start_settings = checked_warm_start(warm_start_from)
        self._model_dir = given = arguments.checked_model_dir(model_dir, self._config.model_dir)
        if self._config.smoke:
            self._model_dir = smoke.make_scratch_dir(self)
            self._config = smoke.make_config(self._config, self._model_dir)
        elif self._model_dir is None:
            self._model_dir = tempfile.mkdtemp()
            log.warning("No `model_dir` is given; using the temporary %s", self._model_dir)
        # A smoke run uses the checkpoints of earlier training until it has one of its own.
        self._dirs_with_checkpoints = list(dict.fromkeys(filter(None, [self._model_dir, given])))
        cluster = dataclasses.replace(self._config.obeyed_cluster(), model_dir=None)
        self._config = self._config.replace(model_dir=self._model_dir, cluster=cluster)
        self._model_fn = model_fn
        self._params = copy.deepcopy(params or {})
        self._input_batches = self._make_input_batches()
        self._warm_sessions = WarmSessions()
        self._dirs_with_events = {self.model_dir}
        weakref.finalize(self, close_collected_event_files, self._dirs_with_events)
        self.__last_input_fn: Callable | None = None
        self.__trained_on: Any = None
        self.__train_result: TrainResult | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Returns what a copy, or a pickled estimator, has in common with this one."""
        return {**vars(self), "_warm_sessions": None, "_Estimator__last_input_fn": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Makes a copy, which opens sessions of its own."""
        vars(self).update(state, _warm_sessions=WarmSessions())

    # Properties, and reading checkpoints.

    @property
    def model_fn(self) -> Callable:
        """The model function with `params` bound: `model_fn(features, labels, mode, config)`.

        For use in another `model_fn`. It takes all four arguments, even if the original takes
        fewer.
        """
        return calling_model_fn(self._call_model_fn)

    @property
    def model_dir(self) -> str:
        """The directory of checkpoints and event files."""
        return str(self._model_dir)

    @property
    def config(self) -> RunConfig:
        """The RunConfig, with `model_dir` set."""
        return self._config

    @property
    def params(self) -> Any:
        """A deep copy of the constructor's `params`; {} by default."""
        return copy.deepcopy(self._params)

    @property
    def train_result(self) -> TrainResult | None:
        """How the last `train` ended, also if by a signal; None before `train`, or if it failed."""
        return self.__train_result

    def eval_dir(self, name: str | None = None) -> str:
        """Returns the directory of the event file of the evaluation of that name."""
        return os.path.join(self.model_dir, "eval" if not name else f"eval_{name}")

    def latest_checkpoint(self) -> str | None:
        """Returns the path of the newest whole checkpoint in `model_dir`; None if there is none."""
        return files.latest_checkpoint(self.model_dir)

    def get_variable_names(self) -> list[str]:
        """Returns the names of all variables in the newest checkpoint.

        Raises:
          ValueError: there is no checkpoint.
        """
        newest = files.existing_checkpoints(self._dirs_with_checkpoints, None)[0]
        return sorted(files.open_checkpoint(newest).get_variable_to_shape_map())

    def get_variable_value(self, name: str) -> np.ndarray:
        """Returns the value of a variable in the newest checkpoint.

        Args:
          name: the name of the variable, without ":0".

        Raises:
          ValueError: there is no checkpoint, or no such variable; the latter is a
            tf.errors.NotFoundError, too.
        """
        names = self.get_variable_names()
        if name not in names:
            raise CheckpointError(f"`name` ({name!r}) is unknown. {did_you_mean(name, names)}")
        newest = files.existing_checkpoints(self._dirs_with_checkpoints, None)[0]
        return files.read_tensor(files.open_checkpoint(newest), name)

    def explain(self, *, steps: int | None = None, max_steps: int | None = None) -> None:
        """Prints where and on which batches the methods will run, and what they write when.

        Builds nothing and writes nothing.

        Args:
          steps: as for `train`.
          max_steps: as for `train`.

        Raises:
          TypeError, ValueError: an argument is invalid, or the strategy cannot be made.
        """
        steps, max_steps = arguments.checked_steps(steps, max_steps)
        title = f"{type(self).__name__} of {show(self._model_fn)} in {self.model_dir}"
        newest = self.latest_checkpoint()
        if self._config.smoke:
            start = files.checkpoint_step(newest) if newest else 0
            steps, max_steps = smoke.limit_training(steps, max_steps, start or 0)
        facts = Facts(
            title, self._input_batches, newest, self._warm_start_settings, self.eval_dir()
        )
        print(explain(facts, steps, max_steps))

    def __repr__(self) -> str:
        """Returns the class and its most important arguments, on a few lines."""
        shown = {"model_fn": show(self._model_fn), "config": repr(self._config)}
        if self._params:
            shown["params"] = reprlib.repr(self._params)
        sizes = {name: str(size) for name, size in self._input_batches.given_sizes.items()}
        return call_in_words(type(self).__name__, {**shown, **sizes})

    # Training, evaluation, prediction and export.

    @no_internal_messages()
    @with_stack_room
    def train(
        self,
        input_fn: Callable,
        hooks: Sequence[Hook] | None = None,
        steps: int | None = None,
        max_steps: int | None = None,
        saving_listeners: Sequence[tf.compat.v1.train.CheckpointSaverListener] | None = None,
    ) -> Estimator:
        """Trains, continuing from the newest checkpoint and from the input position saved with it.

        Args:
          input_fn: returns a tf.data.Dataset of (features, labels), or the tensors themselves. It
            takes any of `params`, `mode`, `config`, `input_context`. Called once in each worker;
            each replica takes one batch after another.
          hooks: called around each session call, which runs a loop of steps.
          steps: how many further steps to train.
          max_steps: the global step to stop at; excludes `steps`. Without either, training stops
            at the end of the input.
          saving_listeners: called around every save of a checkpoint.

        Returns:
          Itself; `train_result` says where training stopped and why.

        Raises:
          tf.compat.v1.train.NanLossDuringTrainingError: by default, if the loss is not finite.
          KeyboardInterrupt: SIGINT was received; the current loop has ended and its last step is
            saved.
          SystemExit: SIGTERM was received, likewise; the exit code is 143.
          ValueError: an argument is invalid, the input is empty, this task of a cluster does not
            train, or the source of `warm_start_from` does not exist or does not fit the model.
          TimeoutError, tf.errors.UnavailableError: another task did not start in time, or is gone.
        """
        check_task_trains(self._config.cluster)
        check_input_fn(input_fn)
        all_hooks = check_hooks(hooks)
        listeners = arguments.checked_listeners(saving_listeners)
        steps, max_steps = arguments.checked_steps(steps, max_steps)
        found = files.any_checkpoints([self.model_dir])
        start = files.checkpoint_step(found[0]) if found else 0
        if self._config.smoke:
            steps, max_steps = smoke.limit_training(steps, max_steps, start or 0)
        # In a cluster, only the chief knows the global step, and the other tasks wait for it.
        is_alone = self._config.cluster.is_alone
        if is_alone and max_steps is not None and start is not None and start >= max_steps:
            warn_of_no_steps(start, max_steps)
            self.__train_result = TrainResult(start, None, "max_steps")
            return self
        arguments.check_writable(self.model_dir)
        runtime = make_training_runtime(self._config)
        model = self.__model_with(self._input_batches.model_params(runtime))
        called_fn = self.__called_fn(input_fn)

        def note_result(result: TrainResult) -> None:
            self.__train_result = result

        def run(config: RunConfig, connection: Connection) -> None:
            old_model = train_setup.find_start(self._warm_start_settings, found, config)
            program = train_setup.build_program(
                model, called_fn, runtime, self._input_batches, config, connection
            )
            self.__trained_on = program.input.element[0]
            request = TrainRequest(
                config=config,
                steps=steps,
                max_steps=max_steps,
                hooks=training_hooks(all_hooks, program.spec, config.is_chief),
                listeners=listeners,
                is_same_input=self.__is_same_input(input_fn),
                old_model=old_model,
                connection=connection,
                batch=self._input_batches.in_words(runtime),
                batch_size=self._input_batches.batch_size(ModeKeys.TRAIN),
            )
            self.__train_result = None
            run_train(program, request, note_result)

        train_setup.run_with_loops(run, self._config, runtime)
        return self

    @no_internal_messages()
    @with_stack_room
    def evaluate(
        self,
        input_fn: Callable,
        steps: int | None = None,
        hooks: Sequence[Hook] | None = None,
        checkpoint_path: str | None = None,
        name: str | None = None,
    ) -> dict[str, Any]:
        """Evaluates a checkpoint on every example of the input, each exactly once.

        After an error that may pass, such as UnavailableError, all of it is done again.

        Args:
          input_fn: as for `train`.
          steps: the maximum number of global batches; None for all.
          hooks: called around each batch.
          checkpoint_path: the checkpoint to evaluate; None for the newest, or for the initial
            values if there is no checkpoint.
          name: the name of the evaluation, which sets its directory; see `eval_dir`.

        Returns:
          The metrics by name, with "loss" and "global_step".

        Raises:
          ValueError: there is no checkpoint at `checkpoint_path`, or the input is empty or never
            ends.
        """
        check_input_fn(input_fn)
        all_hooks = check_hooks(hooks)
        steps = checked_limit("steps", steps)
        check_name(name)

        def run() -> dict[str, Any]:
            weights = self.__weights_to_use(checkpoint_path)
            return self.__evaluate_weights(input_fn, steps, all_hooks, name, weights)

        return retried(run, "The evaluation")

    @no_internal_messages()
    @with_stack_room
    def evaluate_state(
        self,
        state: State,
        input_fn: Callable,
        steps: int | None = None,
        hooks: Sequence[Hook] | None = None,
        name: str | None = None,
    ) -> dict[str, Any]:
        """Evaluates weights in memory instead of a checkpoint; InMemoryEvaluatorHook calls it.

        Args:
          state: the result of `estimator.checkpoint.memory_checkpoint.read_state`.
          input_fn: as for `evaluate`.
          steps: as for `evaluate`.
          hooks: as for `evaluate`.
          name: as for `evaluate`.

        Returns:
          The metrics by name, with "loss" and "global_step".

        Raises:
          ValueError: `state` lacks a variable, or the input is empty or never ends.
        """
        all_hooks = check_hooks(hooks)
        return self.__evaluate_weights(input_fn, steps, all_hooks, name, Weights(state=state))

    @no_internal_messages()
    @with_stack_room
    def predict(
        self,
        input_fn: Callable,
        predict_keys: str | Sequence[str] | None = None,
        hooks: Sequence[Hook] | None = None,
        checkpoint_path: str | None = None,
        yield_single_examples: bool = True,
    ) -> Iterator[Any]:
        """Yields predictions, one for each example of the input, in order.

        Args:
          input_fn: as for `train`; labels are ignored.
          predict_keys: the keys to keep if predictions are a dict; None for all.
          hooks: called around each batch.
          checkpoint_path: the checkpoint to predict with; None for the newest, or for the initial
            values if there is no checkpoint.
          yield_single_examples: whether to yield single examples; if False, yields whole batches.

        Returns:
          A generator of a dict of arrays by key for each example, or of an array if predictions are
          a tensor; with `yield_single_examples=False` of the same for each batch, whose first
          dimension they keep. Arguments are checked and weights restored before it is returned.

        Raises:
          ValueError: there is no checkpoint at `checkpoint_path`, none of the predictions is in
            `predict_keys`, or single examples are asked for and predictions cannot be split into
            them, because they are sparse or their first dimensions differ.
        """
        check_input_fn(input_fn)
        all_hooks = check_hooks(hooks)
        arguments.check_predict_keys(predict_keys)
        weights = self.__weights_to_use(checkpoint_path)
        with self.__taken_session(ModeKeys.PREDICT, input_fn, weights) as (warm, host_input):
            assert isinstance(warm.program, PredictProgram)
            keys = arguments.checked_predict_keys(predict_keys, warm.program.predictions[0])
            is_told = warm.has(weights)
            what = warm.restore(weights)
            if not is_told:
                say_what_predicts(what, self._config)
            spec_hooks = warm.program.spec.prediction_hooks or ()
            hooks_of_call = [*all_hooks, *spec_hooks]
            predictions = warm.track(run_prediction(warm, host_input, keys, hooks_of_call))
        return rows(predictions) if yield_single_examples else predictions

    @no_internal_messages()
    def export_saved_model(
        self,
        export_dir_base: str,
        serving_input_receiver_fn: Callable,
        assets_extra: Mapping[str, str] | None = None,
        as_text: bool = False,
        checkpoint_path: str | None = None,
        experimental_mode: str = ModeKeys.PREDICT,
    ) -> bytes:
        """Writes a SavedModel into a new directory named by a number.

        Args:
          export_dir_base: the parent of the new directory, which appears only when it is complete.
          serving_input_receiver_fn: returns a ServingInputReceiver; for EVAL and TRAIN, one with
            labels, as a function made by `build_raw_supervised_input_receiver_fn` does.
          assets_extra: files to copy into `assets.extra`: destination there -> source path.
          as_text: whether to write the graph as text.
          checkpoint_path: the checkpoint to export; None for the newest, or for the source of
            `warm_start_from` if there is no checkpoint.
          experimental_mode: the mode to build the graph in: PREDICT, with the tag "serve" and a
            signature for each of `export_outputs`; or EVAL or TRAIN, with the tag "eval" or "train"
            and a single signature of that name, with loss, predictions and metrics.

        Returns:
          The path of the directory, as bytes.

        Raises:
          TypeError, ValueError: there is no checkpoint, or an argument is invalid.
        """
        arguments.check_mode_to_export("experimental_mode", experimental_mode)
        receiver_fns = {experimental_mode: ("serving_input_receiver_fn", serving_input_receiver_fn)}
        return self.__export_modes(
            export_dir_base, receiver_fns, assets_extra, as_text, checkpoint_path
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
          export_dir_base: as for `export_saved_model`.
          input_receiver_fn_map: maps each `ModeKeys` to a function that returns its input receiver.
          assets_extra: as for `export_saved_model`.
          as_text: as for `export_saved_model`.
          checkpoint_path: as for `export_saved_model`.

        Returns:
          The path of the directory, as bytes.

        Raises:
          TypeError, ValueError: there is no checkpoint, an argument is invalid, or a mode has
            variables that the first of the modes (of TRAIN, EVAL and PREDICT, in order) lacks.
        """
        receiver_fns = arguments.checked_receiver_fns(input_receiver_fn_map)
        return self.__export_modes(
            export_dir_base, receiver_fns, assets_extra, as_text, checkpoint_path
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
        """Exports for serving; the name of `export_saved_model` in `tf.compat.v1.estimator`.

        Args:
          export_dir_base: as for `export_saved_model`.
          serving_input_receiver_fn: as for `export_saved_model`.
          assets_extra: as for `export_saved_model`.
          as_text: as for `export_saved_model`.
          checkpoint_path: as for `export_saved_model`.
          strip_default_attrs: whether to omit attributes with default values from the graph, so
            that older versions of TensorFlow can load it, as `export_saved_model` always does.

        Returns:
          The path of the directory, as bytes.

        Raises:
          TypeError, ValueError: there is no checkpoint, or an argument is invalid.
        """
        check_bool("strip_default_attrs", strip_default_attrs)
        receiver_fns = {ModeKeys.PREDICT: ("serving_input_receiver_fn", serving_input_receiver_fn)}
        return self.__export_modes(
            export_dir_base,
            receiver_fns,
            assets_extra,
            as_text,
            checkpoint_path,
            strip_default_attrs,
        )

    def with_model_fn(self, model_fn: Callable) -> Estimator:
        """Returns an estimator with another `model_fn` and otherwise equal arguments.

        `add_metrics` uses it.

        Args:
          model_fn: the model function of the new estimator.
        """
        return Estimator(
            model_fn, self.model_dir, self._config, self._params, self._warm_start_settings
        )

    def close(self) -> None:
        """Frees the sessions that `evaluate` and `predict` keep, and closes event files."""
        self._warm_sessions.close()
        close_event_files(self._dirs_with_events)

    def __enter__(self) -> Estimator:
        """Returns itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Calls `close`."""
        self.close()

    # Private methods. A subclass, which may have any member that tf.estimator did not have, cannot
    # hide those with two underscores.

    def _assert_members_are_not_overridden(self) -> None:
        """Raises if a subclass overrides a member.

        A subclass that means to do so overrides this method, too, as with tf.estimator.
        """
        arguments.check_overrides(type(self), Estimator)

    def _make_input_batches(self) -> Batches:
        """Makes the batches of the config and the params; called by the constructor."""
        return Batches(self._config, self._params)

    def __evaluate_weights(
        self,
        input_fn: Callable,
        steps: int | None,
        hooks: list[Hook],
        name: str | None,
        weights: Weights,
    ) -> dict[str, Any]:
        with self.__taken_session(ModeKeys.EVAL, input_fn, weights) as (warm, host_input):
            what = warm.restore(weights)
            hooks = [*hooks, *(warm.program.spec.evaluation_hooks or ())]
            results = run_evaluation(warm, host_input, steps, hooks)
            results["global_step"] = warm.global_step()
            checkpoint = warm.checkpoint_path
        self._dirs_with_events.add(self.eval_dir(name))
        write_evaluation(results, what, name, self.eval_dir(name), self._config, checkpoint)
        return {**results, "global_step": np.int64(results["global_step"])}

    def __model_with(self, params: Any) -> Model:
        is_ours = not overrides(self, "_call_model_fn")
        model_fn = self._model_fn if is_ours else calling_model_fn(self._call_model_fn)
        roots = (self._model_fn, self._params, None if is_ours else self._call_model_fn)
        outside_values = OutsideValues(roots, self._warm_sessions.results_of_model_fn)
        return Model(model_fn, params, self._config, self.__trained_on, outside_values)

    def __called_fn(self, input_fn: Callable) -> Callable:
        """Returns `input_fn`, or a call of the `_call_input_fn` that overrides ours."""
        is_ours = not overrides(self, "_call_input_fn")
        return input_fn if is_ours else calling_input_fn(self._call_input_fn, input_fn)

    @contextlib.contextmanager
    def __taken_session(
        self, mode: str, input_fn: Callable, weights: Weights
    ) -> Iterator[tuple[WarmSession, HostInput]]:
        """Gives the mode's session, which can restore `weights`, and this call's input."""
        runtime = make_runtime(self._config, mode)
        called_fn = self.__called_fn(input_fn)
        host_input = make_host_input(
            called_fn, runtime, self._input_batches, self._warm_sessions.inputs
        )
        model = self.__model_with(self._input_batches.model_params(runtime))
        with self._warm_sessions.taken(model, runtime, host_input, weights) as warm:
            yield warm, host_input

    def __is_same_input(self, input_fn: Callable) -> bool:
        """Returns whether the last `train` of this object, if any, had the same input."""
        last, self.__last_input_fn = self.__last_input_fn, input_fn
        return last is None or is_same_input(last, input_fn)

    @with_stack_room
    def __export_modes(
        self,
        export_dir_base: str,
        receiver_fns: Mapping[str, tuple[str, Callable]],
        assets_extra: Mapping[str, str] | None,
        as_text: bool,
        checkpoint_path: str | None,
        strip_default_attrs: bool = True,
    ) -> bytes:
        """Exports a graph for each mode.

        `receiver_fns` has, for each mode, the name of the argument and the function.
        """
        arguments.check_export(export_dir_base, receiver_fns, assets_extra, as_text)
        if self._config.smoke:
            export_dir_base = smoke.make_export_dir(export_dir_base, self.model_dir)
        paths = export_setup.checkpoints_to_export(
            checkpoint_path, self._dirs_with_checkpoints, self._warm_start_settings
        )
        find_paths = None  # A checkpoint that was named is the only one.
        if not checkpoint_path:
            find_paths = functools.partial(files.any_checkpoints, list(self._dirs_with_checkpoints))
        programs = export_setup.build_programs(
            receiver_fns, lambda mode: self.__model_with(self._input_batches.export_params(mode))
        )
        session_config = make_plain_runtime(self._config, ModeKeys.PREDICT).session_config()
        with opened_export(programs, paths, session_config, find_paths) as (session, graphs):
            return write_saved_models(
                export_dir_base,
                session,
                graphs,
                assets_extra=assets_extra,
                as_text=as_text,
                strip_default_attrs=strip_default_attrs,
            )

    def __weights_to_use(self, checkpoint_path: str | None) -> Weights:
        """Returns the weights to evaluate or predict with: a checkpoint, or the initial values."""
        find_paths = functools.partial(
            files.any_checkpoints, list(self._dirs_with_checkpoints), checkpoint_path
        )
        paths = find_paths()
        warm_start = None if paths else self._warm_start_settings
        return Weights(paths, warm_start=warm_start, find_paths=find_paths)
