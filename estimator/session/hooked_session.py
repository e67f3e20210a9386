"""Runs a session call with `tf.compat.v1.train.SessionRunHook`s around it."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator import _tf
from estimator.config.checks import WrongTypeError
from estimator.console import log
from estimator.session import preparation
from estimator.session.hook_errors import HookInLoopError
from estimator.session.hook_fetches import Hook, HookFetches
from estimator.session.schedule import Schedule


class ScheduledHook(Hook):
    """A hook of this library that acts at the ends of loops, on a schedule.

    Attributes:
      schedule: when the hook acts; loops end on its steps.
    """

    schedule: Schedule
    _step = 0

    def begin(self) -> None:
        """Adds the op that reads the global step."""
        step = tf.compat.v1.train.get_or_create_global_step()
        self._step_read = _tf.copies(step)[0].read_value()

    def after_create_session(
        self, session: tf.compat.v1.Session, coord: tf.train.Coordinator
    ) -> None:
        """Records the step that training starts from."""
        del coord
        self._step = int(session.run(self._step_read))

    def after_run(
        self,
        run_context: tf.compat.v1.train.SessionRunContext,
        run_values: tf.compat.v1.train.SessionRunValues,
    ) -> None:
        """Calls `act` if the schedule is due."""
        del run_values
        before, self._step = self._step, int(run_context.session.run(self._step_read))
        if self.schedule.is_due(before, self._step):
            self.act(run_context)

    def act(self, run_context: tf.compat.v1.train.SessionRunContext) -> None:
        """Performs the hook's action, after a session call."""
        raise NotImplementedError

    def should_stop_at(self, step: int) -> bool:
        """Returns whether to stop at `step`; called before the first loop and after each save.

        The step may have been evaluated by then, which `after_run` is called too early to see.
        """
        del step
        return False


class HookedSession:
    """A session whose calls invoke hooks; without hooks, a call is a bare callable.

    `graph` may be extended by a hook's `begin`, as the stock ones do.
    """

    def __init__(
        self,
        graph: tf.Graph,
        hooks: Sequence[Hook],
        fetch_overrides: Mapping[int, tf.Tensor] | None = None,
        is_loop: bool = False,
        may_leave_loop: bool = False,
        step: tf.Tensor | None = None,
    ) -> None:
        """Calls `begin` of each hook; opens no session yet.

        Args:
          graph: the session's graph.
          hooks: the hooks, in the order in which they are called.
          fetch_overrides: what to fetch instead of a tensor or a variable, by its `id`.
          is_loop: whether the steps are in a loop.
          may_leave_loop: whether a HookInLoopError before the first call has training run one step
            a call instead.
          step: the tensor to fetch if a hook asks for the global step's variable by name; reads of
            other variables wait for it. None outside of training.

        Raises:
          HookInLoopError: a hook names a tensor that exists only inside the loop, or will ask for
            one at the end.
        """
        self._graph = graph
        self._hooks = list(hooks)
        self._fetches = HookFetches(graph, fetch_overrides or {}, is_loop)
        self._is_loop = is_loop
        self._may_leave_loop = may_leave_loop
        self._warned: set[int] = set()
        self._callables: dict[Any, Any] = {}
        self._prepared: dict[Any, concurrent.futures.Future] = {}
        self._is_asked_to_stop = False
        self._coordinator = tf.train.Coordinator()
        with graph.as_default():
            for hook in self._hooks:
                if may_leave_loop and isinstance(hook, tf.compat.v1.train.FeedFnHook):
                    self._check_feeds(hook)  # Before it is asked for the first value.
                with self._fetches.explaining_names(hook), _tf.unique_event_files():
                    hook.begin()
                if isinstance(hook, tf.compat.v1.train.FinalOpsHook):
                    _tf.map_fetches(
                        functools.partial(self._fetches.reachable, hook), _tf.final_ops(hook)
                    )
            if self._hooks:
                self._fetches.find_variables(step)

    def start(
        self,
        session: tf.compat.v1.Session,
        coordinator: tf.train.Coordinator,
        for_hooks: Any = None,
        note_feeds: Callable[[dict[tf.Tensor, Any]], None] = lambda feeds: None,
    ) -> None:
        """Sets the session that calls use, and what hooks are given in its place.

        `note_feeds` is called with what each call feeds, before hooks see it.
        """
        self.session = session
        self._coordinator = coordinator
        self._for_hooks = session if for_hooks is None else for_hooks
        self._note_feeds = note_feeds
        with self._graph.as_default():
            for hook in self._hooks:
                with self._fetches.explaining_names(hook):
                    hook.after_create_session(self._for_hooks, coordinator)

    def leave(self) -> None:
        """Forgets the session, and what hooks have asked for in it, for the next `start`."""
        self._callables.clear()
        self._prepared.clear()
        self._is_asked_to_stop = False

    def stop_queues(self) -> None:
        """Closes the queues of queue runners; a task that waits for an element gets an error.

        From then on, `should_stop` is True.
        """
        self._coordinator.request_stop()

    @property
    def should_stop(self) -> bool:
        """Whether a hook has asked to stop, through a call's context or the coordinator."""
        return self._is_asked_to_stop or self._coordinator.should_stop()

    def run(
        self,
        fetches: list[Any],
        feeds: Sequence[tf.Tensor],
        values: Sequence[Any],
        hooks: Sequence[Hook] | None = None,
        before_hooks: Callable[[list], None] = lambda results: None,
        original: Any = None,
    ) -> list:
        """Runs `fetches` with `values` for `feeds`; hooks (all if None) may add fetches and feeds.

        `before_hooks` is called with the results before the hooks' `after_run`. `original` is what
        hooks find as the fetches of `original_args`; None for `fetches`.

        Raises:
          Exception: the error with which a hook asked the coordinator to stop.
        """
        hooks = self._hooks if hooks is None else hooks
        if not hooks:
            results = self._callable(fetches, feeds)(*values)
            before_hooks(results)
            return results
        with self._is_default():
            shown = fetches if original is None else original
            return self._run_hooked(fetches, feeds, values, hooks, before_hooks, shown)

    def schedules(self) -> list[Schedule]:
        """Returns the schedules of the hooks that have one."""
        return [hook.schedule for hook in self._hooks if isinstance(hook, ScheduledHook)]

    def ask_to_stop(self, step: int) -> None:
        """Asks the hooks that implement `should_stop_at` whether to stop."""
        for hook in self._hooks:
            if isinstance(hook, ScheduledHook) and hook.should_stop_at(step):
                self._is_asked_to_stop = True

    def end(self, unsaved_step: int | None = None) -> None:
        """Calls the hooks' `end` after the last session call.

        If the last step, `unsaved_step`, must not be saved, hooks that would save it only call the
        `end` of their listeners.
        """
        with self._is_default():
            for hook in self._hooks:
                is_saver = isinstance(hook, tf.compat.v1.train.CheckpointSaverHook)
                if unsaved_step is None or not is_saver:
                    hook.end(self._for_hooks)
                    continue
                for listener in _tf.listeners_of(hook):
                    listener.end(self._for_hooks, unsaved_step)

    def _is_default(self) -> contextlib.AbstractContextManager:
        """Makes the graph the default inside the block, as hooks look for its global step."""
        if tf.compat.v1.get_default_graph() is self._graph:
            return contextlib.nullcontext()
        return self._graph.as_default()

    def _run_hooked(
        self,
        fetches: list[Any],
        feeds: Sequence[tf.Tensor],
        values: Sequence[Any],
        hooks: Sequence[Hook],
        before_hooks: Callable[[list], None],
        original: Any,
    ) -> list:
        train = tf.compat.v1.train
        fed = dict(zip(feeds, values, strict=True))
        self._note_feeds(fed)
        arguments = train.SessionRunArgs(original, fed)
        context = train.SessionRunContext(arguments, self._for_hooks)
        asked = [(hook, self._ask(hook, context)) for hook in hooks]
        results, metadata, options = self._run_asked(fetches, feeds, values, asked)
        self._fetches.has_run = True
        before_hooks(results["ours"])
        for hook, _ in asked:
            run_values = train.SessionRunValues(results.get(hook), options, metadata)
            hook.after_run(context, run_values)
        self._is_asked_to_stop = self._is_asked_to_stop or context.stop_requested
        if self._coordinator.should_stop():
            self._coordinator.raise_requested_exception()
        return results["ours"]

    def _ask(self, hook: Hook, context: tf.compat.v1.train.SessionRunContext) -> Any:
        """Returns what a hook asks for in a call."""
        if not self._is_loop:
            return hook.before_run(context)
        with self._fetches.explaining_names(hook):
            return hook.before_run(context)

    def prepare(
        self,
        session: tf.compat.v1.Session,
        fetches: list[Any],
        feeds: Sequence[tf.Tensor],
    ) -> None:
        """Begins to prepare the first call of `run`, unless that has begun already.

        A hook that asks for tensors of its own makes the call another one, so nothing is prepared.
        """
        is_asked = any(overrides(hook, "before_run") for hook in self._hooks)
        if not is_asked and not self._prepared:
            future = preparation.begin(_tf.make_callable, session, fetches, feeds)
            self._prepared[_key(fetches, feeds)] = future

    def _callable(self, fetches: list[Any], feeds: Sequence[tf.Tensor]) -> Any:
        key = _key(fetches, feeds)
        if key not in self._callables:
            future = self._prepared.get(key)
            if future is None or future.exception() is not None:
                made = _tf.make_callable(self.session, fetches, feeds)  # Raises the same error.
            else:
                made = future.result()
            # Keeps a reference to the fetches, because their ids are the key.
            self._callables[key] = made, fetches, feeds
        return self._callables[key][0]

    def _run_asked(
        self,
        fetches: list[Any],
        feeds: Sequence[tf.Tensor],
        values: Sequence[Any],
        asked: Sequence[tuple[Hook, Any]],
    ) -> tuple[dict[Any, Any], Any, Any]:
        options = tf.compat.v1.RunOptions()
        metadata = tf.compat.v1.RunMetadata()
        if not any(arguments for _, arguments in asked):
            return {"ours": self._callable(fetches, feeds)(*values)}, metadata, options
        everything: dict[Any, Any] = {"ours": fetches}
        feed_dict = {id(feed): (feed, value) for feed, value in zip(feeds, values, strict=True)}
        for hook, arguments in asked:
            if arguments is None:
                continue
            if arguments.fetches is not None:
                fetchable = functools.partial(self._fetches.fetchable, hook)
                everything[hook] = _tf.map_fetches(fetchable, arguments.fetches)
            if arguments.feed_dict:
                self._check_feeds(hook)
            for key, value in (arguments.feed_dict or {}).items():
                tensor = self._fetches.tensor_to_feed(hook, key)
                if id(tensor) in feed_dict:
                    raise RuntimeError(
                        f"The hook {type(hook).__name__} feeds {tensor.name}, which another hook "
                        "or the library feeds already. Feed it from one hook only."
                    )
                feed_dict[id(tensor)] = tensor, value
            if arguments.options is not None:
                _merge_options(options, arguments.options)
        # Not as `run` of a `_tf.MappedSession` would: what hooks fetch here belongs to the step.
        run = functools.partial(tf.compat.v1.Session.run, self.session)
        results = run(everything, dict(feed_dict.values()), options, metadata)
        return results, metadata, options

    def _check_feeds(self, hook: Hook) -> None:
        """Leaves the loop, or warns once per hook, since a fed value holds for all its steps."""
        if not self._is_loop or id(hook) in self._warned:
            return
        self._warned.add(id(hook))
        says = (
            f"The hook {type(hook).__name__} feeds a value once for all steps of a loop. With "
            "`iterations_per_loop=1`, each step has its own."
        )
        if self._may_leave_loop and not self._fetches.has_run:
            raise HookInLoopError(says, has_trained=False)
        log.warning("%s", says)


def overrides(hook: Hook, name: str) -> bool:
    """Returns whether a hook has a method of its own, in its class or as an attribute."""
    return getattr(getattr(hook, name), "__func__", None) is not getattr(Hook, name)


def _key(fetches: Sequence[Any], feeds: Sequence[tf.Tensor]) -> Any:
    return tuple(id(f) for f in fetches), tuple(id(f) for f in feeds)


def _merge_options(options: Any, more: Any) -> None:
    """Adds a hook's RunOptions to those of others; the highest trace level and timeout count."""
    names = ("trace_level", "timeout_in_ms", "inter_op_thread_pool")
    highest = {name: max(getattr(options, name), getattr(more, name)) for name in names}
    options.MergeFrom(more)
    options.MergeFrom(tf.compat.v1.RunOptions(**highest))


@contextlib.contextmanager
def coordinated(session: tf.compat.v1.Session) -> Iterator[tf.train.Coordinator]:
    """Runs the queue runners of the default graph, if there are any, inside the block."""
    v1 = tf.compat.v1
    # Threads that still wait at the end are cancelled.
    clean = (tf.errors.OutOfRangeError, tf.errors.CancelledError)
    coordinator = tf.train.Coordinator(clean_stop_exception_types=clean)
    runners = v1.get_collection(v1.GraphKeys.QUEUE_RUNNERS)
    has_queues = bool(runners)
    if any(_tf.is_loop_body(op.graph) for runner in runners for op in runner.enqueue_ops):
        reason = (
            "`model_fn` makes a queue with a QueueRunner, which cannot fill it inside the loop."
        )
        raise HookInLoopError(reason, has_trained=False)
    threads = v1.train.start_queue_runners(session, coordinator) if has_queues else []
    try:
        yield coordinator
    finally:
        coordinator.request_stop()
        coordinator.join(threads, stop_grace_period_secs=5, ignore_live_threads=True)


def check_hooks(hooks: Any, argument: str = "hooks") -> list[Hook]:
    """Returns the hooks as a list; raises an error if one is not a hook."""
    if hooks is None:
        return []
    if isinstance(hooks, str) or not isinstance(hooks, Iterable):
        raise WrongTypeError(f"`{argument}` ({hooks!r}) must be a list of SessionRunHooks.")
    hooks = list(hooks)
    for hook in hooks:
        if not isinstance(hook, tf.compat.v1.train.SessionRunHook):
            raise WrongTypeError(
                f"`{argument}` holds {hook!r}, which is not an instance of "
                "tf.compat.v1.train.SessionRunHook. Derive its class from that class."
            )
    return hooks
