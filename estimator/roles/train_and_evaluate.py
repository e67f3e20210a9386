"""`train_and_evaluate` in every task of a cluster: who trains, serves variables or evaluates."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence

import tensorflow as tf

from estimator.checkpoint import files
from estimator.checkpoint.errors import DamagedCheckpointsError
from estimator.checkpoint.trainer_lock import is_locked
from estimator.cluster.stop_policies import STOP_POLICIES
from estimator.config.cluster import CHIEF, EVALUATOR, MASTER, PS
from estimator.console import log
from estimator.estimators.arguments import check_writable
from estimator.estimators.estimator import Estimator
from estimator.roles.completion import (
    ChiefWatch,
    CompletionWatch,
    checkpoints_oldest_first,
    complete_call,
    completed_calls,
)
from estimator.roles.left_alone import is_left_alone
from estimator.roles.local_run import (
    Evaluation,
    TrainAndEvaluateResult,
    last_train_result,
    recorded_result,
    run_local,
    run_training,
)
from estimator.roles.ps_task import serve_parameters
from estimator.roles.train_eval_specs import EvalSpec, TrainSpec, checked_specs
from estimator.runtime.strategy import check_roles, check_task_trains, make_training_runtime
from estimator.summary.event_reader import read_evaluations
from estimator.training.end_record import clear_end, write_end
from estimator.training.request import TrainResult

_POLL_SECS = 0.5
# The chief may write a damaged checkpoint again, and files may be seen late on a network.
_DAMAGED_RETRY_SECS = 30.0


def train_and_evaluate(
    estimator: Estimator, train_spec: TrainSpec, eval_spec: EvalSpec | Sequence[EvalSpec]
) -> TrainAndEvaluateResult:
    """Trains, evaluates checkpoints during training and the last one in any case, and exports.

    On one machine, training is one session and one pass over its input; evaluations and exports
    happen in between, each in its own session. If there is nothing left to train, the newest
    checkpoint is still evaluated and exported. If the RunConfig saves no checkpoints, only the last
    step is evaluated. A signal during an evaluation that ends the training (see `Estimator.train`)
    takes effect after it; the checkpoint that is then saved is not evaluated.

    In a cluster that TF_CONFIG describes, call it in every task:

        task                   trains  evaluates, exports  returns when
        chief                  yes     if it is alone      training has ended
        "master"               yes     yes                 the last evaluation has ended
        worker                 yes     no                  training has ended
        ps                     no      no                  the chief's process has ended
        evaluator              no      yes                 the last checkpoint is evaluated

    A chief is alone if TF_CONFIG's cluster has no other task that trains, no ps and no evaluator.

    With a `throttle_secs` of 0 or with `every_steps`, an evaluator evaluates every checkpoint in
    order, including those written before it started; otherwise only the newest one. It always
    evaluates the last one, and none that an evaluation of the same name has in its directory. It
    ends after the last checkpoint of a training that has ended or has reached `max_steps`. A
    training that ended before the evaluator was started, short of `max_steps`, may be about to
    resume: the evaluator waits for that for the config's `session_creation_timeout_secs`.

    Args:
      estimator: the Estimator to train.
      train_spec: how to train it.
      eval_spec: how to evaluate it; or a list of EvalSpecs with different names, each evaluated on
        its own schedule, in its own directory.

    Returns:
      `metrics, export_results`, with further attributes. A task that does not evaluate has no
      metrics, but says why training ended.

    Raises:
      TypeError, ValueError: an argument is wrong, two EvalSpecs or exporters have the same name, or
        an `every_steps` does not fit the interval of checkpoints.
      SystemExit: in a ps task or an evaluator, if training has failed or was ended by SIGTERM.
      TimeoutError, tf.errors.UnavailableError: another task did not start, or is gone.
    """
    specs = checked_specs(estimator, train_spec, eval_spec)
    config, cluster = estimator.config, estimator.config.cluster
    if cluster.task_type in (EVALUATOR, PS):
        # These tasks would wait for others, which end at once because of such a mistake.
        check_roles(config)
    if cluster.task_type == EVALUATOR:
        return run_evaluator(estimator, train_spec, specs)
    if cluster.task_type == PS:
        ending = CompletionWatch(config.model_dir)
        # In a second call it is known that the chief's process has ended, after all of its calls.
        has_ended = ending.is_new(ending.read())
        is_over = not has_ended and is_left_alone(config, train_spec.max_steps)
        if not is_over and (exit_status := serve_parameters(config)):
            raise SystemExit(exit_status)
        return _without_metrics(estimator, specs, recorded_result(estimator))
    check_task_trains(cluster)
    if not cluster.addresses:
        return run_local(estimator, train_spec, specs)
    if cluster.is_alone and EVALUATOR not in cluster.addresses:
        with _recording_end(estimator):
            return run_local(estimator, train_spec, specs)
    make_training_runtime(config)
    with _recording_end(estimator) if config.is_chief else contextlib.nullcontext():
        if cluster.task_type == CHIEF and cluster.chief_name == MASTER:
            return run_local(estimator, train_spec, specs)
        listeners = train_spec.saving_listeners if config.is_chief else None
        train_result = run_training(estimator, train_spec, listeners)
    if not config.is_chief:
        complete_call(estimator.model_dir)
    return _without_metrics(estimator, specs, train_result)


@contextlib.contextmanager
def _recording_end(model: Estimator) -> Iterator[None]:
    """Removes the record of an earlier end, and records how the block ends.

    Of two chiefs that were started, one fails, and leaves the record to the one that trains.
    """
    check_writable(model.model_dir)
    if not is_locked(model.model_dir):
        clear_end(model.model_dir)
    try:
        yield
    except BaseException as error:
        if not is_locked(model.model_dir):
            try:
                _write_end(model, _exit_status(error), "signal or error")
            except tf.errors.OpError as failure:  # The first error says more.
                log.error("The evaluator is not told that training has ended: %s", failure.message)
        raise
    # There is no result if a subclass had another estimator train.
    result = last_train_result(model)
    reason = "max_steps" if result is None else result.reason
    _write_end(model, 0, reason)
    complete_call(model.model_dir)


def _write_end(model: Estimator, exit_status: int, reason: str) -> None:
    """Records the end of the call that is being made; those before it are completed."""
    call = completed_calls(model.model_dir) + 1
    write_end(model.model_dir, exit_status=exit_status, reason=reason, call=call)


def _exit_status(error: BaseException) -> int:
    """Returns the status with which the process ends if nothing handles the error."""
    if isinstance(error, KeyboardInterrupt):
        return STOP_POLICIES["SIGINT"].exit_status
    if isinstance(error, SystemExit) and isinstance(error.code, int):
        return error.code
    return 1


def _without_metrics(
    model: Estimator, specs: Sequence[EvalSpec], train_result: TrainResult
) -> TrainAndEvaluateResult:
    return TrainAndEvaluateResult([Evaluation(model, spec) for spec in specs], train_result)


def run_evaluator(
    model: Estimator,
    train_spec: TrainSpec,
    specs: Sequence[EvalSpec],
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> TrainAndEvaluateResult:
    """Evaluates what another process trains, until training has ended.

    Args:
      model: an Estimator with the directory that the chief writes to.
      train_spec: determines where training ends.
      specs: the evaluations.
      clock: returns seconds since an arbitrary fixed time.
      sleep: waits for a number of seconds.

    Raises:
      SystemExit: training has failed; its checkpoints are evaluated first, and the last one is
        exported as the final model only if it has reached `max_steps`.
      TimeoutError: the chief is gone and does not come back within the config's
        `session_creation_timeout_secs`.
    """
    with contextlib.closing(ChiefWatch(model.config, clock)) as watch:
        started_at, ending = clock(), CompletionWatch(model.model_dir)
        # After this time, an end older than this process must belong to this training.
        old_secs = model.config.session_creation_timeout_secs
        delay = min(spec.start_delay_secs for spec in specs)
        followers = [_Follower(model, spec, clock) for spec in specs]
        while True:
            # Reads the end before the checkpoints: no checkpoint is written after the end.
            end = ending.read()
            checkpoints = checkpoints_oldest_first(model.model_dir)
            waited = clock() - started_at
            step = checkpoints[-1][0] if checkpoints else 0
            is_at_max = train_spec.max_steps is not None and step >= train_spec.max_steps
            is_old = not ending.is_new(end) and waited < max(delay, old_secs)
            is_last = is_at_max or (end is not None and not is_old)
            # What a training that is to be started again has reached is not its final model.
            is_final = is_at_max or (is_last and not (end or {}).get("exit_status"))
            if waited >= delay or is_last:
                for follower in followers:
                    follower.follow(checkpoints, is_last, is_final)
            if is_last:
                break
            watch.check((end, checkpoints[-1:]))
            sleep(_POLL_SECS)
    if checkpoints and is_final:
        path = checkpoints[-1][1]  # By now the chief may have begun its next call.
        for follower in followers:
            follower.run_last(path if files.exists(path) else None)
    if exit_status := (end or {}).get("exit_status"):
        log.error(
            "The evaluator ends, as the chief has: exit status %d. The chief's own log says why.",
            exit_status,
        )
        raise SystemExit(exit_status)
    complete_call(model.model_dir)
    return TrainAndEvaluateResult(followers, recorded_result(model))


class _Follower(Evaluation):
    """The evaluations of one EvalSpec in an evaluator."""

    def __init__(self, model: Estimator, spec: EvalSpec, clock: Callable[[], float]) -> None:
        evaluated = read_evaluations(os.path.join(model.eval_dir(spec.name), "*tfevents*"))
        super().__init__(model, spec, clock=clock)
        # The initial checkpoint is not evaluated unless no other follows it. A later evaluation, of
        # the chief, say, does not make up for one that was interrupted.
        unfinished = float("inf") if self._unfinished_step is None else self._unfinished_step
        self._step = max((step for step in evaluated if step < unfinished), default=0)
        self._evaluated_step = self._step
        self._clock = clock
        self._damaged: dict[str, tuple[int, float]] = {}  # By path: its time, when to try again.

    def follow(self, checkpoints: Sequence[tuple[int, str]], is_last: bool, is_final: bool) -> None:
        """Evaluates the checkpoints that are due.

        Args:
          checkpoints: the existing checkpoints with their steps, in ascending order.
          is_last: whether no checkpoint will follow.
          is_final: whether the last one is the final model, which is exported as such.
        """
        new = [(step, path) for step, path in checkpoints if step > self._evaluated_step]
        is_each = self.spec.every_steps is not None or self.spec.throttle_secs == 0
        for step, path in new:
            is_unfinished = step == self._unfinished_step
            if not is_each and not is_unfinished and path != new[-1][1]:
                continue
            if self._is_still_damaged(path):
                continue
            before = self._step
            is_the_last = is_last and path == checkpoints[-1][1]
            if is_the_last or is_unfinished or self.is_due(step):
                self._evaluate(step, path, is_the_last and is_final)
            if path in self._damaged:
                self._step = before  # It is due again.

    def _evaluate(self, step: int, path: str, is_final: bool) -> None:
        """Evaluates a checkpoint, unless it is damaged: the chief goes on from one before."""
        self._damaged.pop(path, None)
        try:
            self.run(path, is_final)
        except DamagedCheckpointsError:  # A warning has said so.
            self._damaged[path] = _written_at(path), self._clock() + _DAMAGED_RETRY_SECS
            return
        except (ValueError, tf.errors.NotFoundError):
            if not files.exists(path):
                log.warning("The checkpoint %s was removed before it could be evaluated.", path)
            elif files.is_readable(path):
                raise
            return
        self._evaluated_step = step

    def _is_still_damaged(self, path: str) -> bool:
        written_at, again_at = self._damaged.get(path, (0, 0.0))
        return again_at > self._clock() and _written_at(path) == written_at


def _written_at(path: str) -> int:
    with contextlib.suppress(tf.errors.NotFoundError):
        return int(tf.io.gfile.stat(files.main_file(path)).mtime_nsec)
    return 0
