"""The one door to `tensorflow.python.*` and to the inside of Keras.

TensorFlow promises nothing about these names. Each entry says why the public API does not do, and
since which version it is known to work, so that an upgrade of TensorFlow is checked in one file.
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import functools
import itertools
import os
import sys
import threading
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.protobuf import config_pb2 as _config_pb2
from tensorflow.core.protobuf import trackable_object_graph_pb2 as _object_graph
from tensorflow.python.checkpoint import graph_view as _graph_view
from tensorflow.python.distribute import collective_all_reduce_strategy as _multi_worker
from tensorflow.python.eager import lift_to_graph as _lift_to_graph
from tensorflow.python.framework import random_seed as _random_seed
from tensorflow.python.ops import cond_v2, gen_logging_ops, gen_random_ops, while_v2
from tensorflow.python.ops import control_flow_v2_func_graphs as _func_graphs
from tensorflow.python.ops import parallel_for as _parallel_for
from tensorflow.python.ops import random_ops_util as _random_ops_util
from tensorflow.python.tpu import tpu_strategy_util as _tpu_strategy_util
from tensorflow.python.training import checkpoint_utils as _checkpoint_utils
from tensorflow.python.training import optimizer as _v1_optimizer

# The attribute of an op that is part of a TPU's program (2.16 to 2.21).
_TPU_PROGRAM = "_tpu_replicate"

# `tf.while_loop` and `tf.cond` build Switch and Merge by hand after `tf.disable_v2_behavior()`,
# which old scripts call. These build one functional op whatever was called. 2.16 to 2.21.
while_loop = while_v2.while_loop


def cond(predicate: tf.Tensor, true_fn: Callable, false_fn: Callable, name: str) -> Any:
    """`tf.cond` as one functional op, whatever v1 switches are set (2.16 to 2.21)."""
    return cond_v2.cond_v2(predicate, true_fn, false_fn, name=name)


def lift_to_graph(tensor: tf.Tensor, graph: tf.Graph) -> tf.Tensor:
    """Rebuilds `tensor`, an initial value made inside a loop body, in the graph around the loop.

    There is no public way; `tf.function` itself lifts initial values with it. What was made for a
    TPU is no part of its program where it is rebuilt. 2.16 to 2.21.
    """
    num_ops = len(graph.get_operations())
    lifted = _lift_to_graph.lift_to_graph([tensor], graph)[tensor]
    for op in graph.get_operations()[num_ops:]:
        if _TPU_PROGRAM in op.node_def.attr:
            op._clear_attr(_TPU_PROGRAM)
    return lifted


def add_control_inputs(op: tf.Operation, inputs: Sequence[tf.Operation]) -> None:
    """Makes the existing `op` wait for `inputs`.

    `tf.control_dependencies` reaches only ops that are yet to be made. 2.16 to 2.21.
    """
    op._add_control_inputs(inputs)


def set_input(op: tf.Operation, tensor: tf.Tensor) -> None:
    """Makes the first input of the existing `op` another tensor of its graph (2.16 to 2.21)."""
    op._update_input(0, tensor)


def control_outputs(op: tf.Operation) -> Sequence[tf.Operation]:
    """The ops that wait for `op` without reading it (2.16 to 2.21)."""
    return op._control_outputs


def is_loop_body(graph: tf.Graph) -> bool:
    """Whether `graph` is a function body: its tensors cannot be fetched (2.16 to 2.21)."""
    return bool(graph.building_function)


def outer_graphs(graph: tf.Graph) -> list[tf.Graph]:
    """`graph` and the graphs around it, the innermost first (FuncGraph.outer_graph, 2.16)."""
    graphs = [graph]
    while (graph := getattr(graph, "outer_graph", None)) is not None:
        graphs.append(graph)
    return graphs


def capture_source(tensor: tf.Tensor) -> tf.Tensor:
    """The tensor of the outermost graph that `tensor`, inside function bodies, stands for.

    Of what a TPU's program takes in, one for each core, it is the first core's.
    """
    while True:
        captures = getattr(tensor.graph, "captures", None) or ()
        outside = next((outer for outer, inner in captures if inner is tensor), None)
        if outside is None and tensor.op.type == "TPUReplicatedInput":
            outside = tensor.op.inputs[0]
        if outside is None:
            return tensor
        tensor = outside


@contextlib.contextmanager
def noting_waits(body: tf.Graph) -> Iterator[dict[tf.Operation, list[tf.Operation]]]:
    """Inside, notes which ops around a loop the new ops of its body were told to wait for.

    The body itself only knows them all together: the whole loop waits for them. 2.16 to 2.21.

    Yields:
      By op of the body: those around it.
    """
    waits: dict[tf.Operation, list[tf.Operation]] = {}
    original = body.control_dependencies

    @contextlib.contextmanager
    def noting(inputs: Any) -> Iterator[None]:
        inputs = None if inputs is None else list(inputs)
        ops = [getattr(value, "op", value) for value in inputs or ()]
        outer = [op for op in ops if getattr(op, "graph", body) is not body]
        num_ops_before = len(body.get_operations()) if outer else 0
        with original(inputs):
            yield
        if outer:
            for op in body.get_operations()[num_ops_before:]:
                waits.setdefault(op, []).extend(outer)

    body.control_dependencies = noting
    try:
        yield waits
    finally:
        del body.control_dependencies


def forget_waits(body: tf.Graph, ops: Iterable[tf.Operation]) -> None:
    """The loop does not wait for these ops around it: no step does (2.16 to 2.21)."""
    unwanted = set(ops)
    control = body.function_captures.control
    control -= {value for value in control if getattr(value, "op", value) in unwanted}


def copy_op(op: tf.Operation, inputs: Sequence[tf.Tensor]) -> tf.Operation:
    """Makes an op like `op` in the default graph, with other inputs.

    The public `Graph.create_op` does not let a function body capture its inputs. 2.16 to 2.21.
    """
    # What an op stands beside, by name, may not be there; nor the program that it is part of.
    attrs = {k: v for k, v in op.node_def.attr.items() if k not in ("_class", _TPU_PROGRAM)}
    return tf.compat.v1.get_default_graph()._create_op_internal(
        op.type,
        list(inputs),
        [output.dtype for output in op.outputs],
        name=op.name,
        attrs=attrs,
        op_def=op.op_def,
    )


def is_ref(tensor: tf.Tensor) -> bool:
    """Whether `tensor` is a reference to a v1 variable's or queue's buffer (2.16 to 2.21)."""
    return tensor.dtype._is_ref_dtype


def swap_seed_counter(graph: tf.Graph, count: int) -> int:
    """Sets how many op seeds `graph` has given out; returns the number before.

    An op without a seed of its own gets the graph's seed and this count. 2.16 to 2.21.
    """
    before = _random_seed._graph_to_seed_dict.get(graph, 0)
    _random_seed._graph_to_seed_dict[graph] = count
    return before


@contextlib.contextmanager
def random_ops_replaced(draw: Callable[..., Any], names: Iterable[str]) -> Iterator[None]:
    """Inside, a call of one of these functions of `gen_random_ops` is one of `draw`.

    Every public random function calls one, on any thread. In branches and loops an op cannot be
    exchanged once it is made, so it has to happen here. `draw` is given the function's name, the
    function and its arguments. Builds hold a lock. 2.16 to 2.21.
    """
    with contextlib.ExitStack() as stack:
        for name in names:
            original = getattr(gen_random_ops, name)
            stack.callback(setattr, gen_random_ops, name, original)
            setattr(gen_random_ops, name, functools.partial(draw, name, original))
        yield


@contextlib.contextmanager
def keras_seeds_replaced(replaced: Callable[[tf.Tensor], tf.Tensor]) -> Iterator[None]:
    """Inside, the seed of each random op without state that Keras makes is that of `replaced`.

    Keras 3 draws with such ops alone, from seeds that all replicas hold alike; the user's own calls
    of them are left alone. random_ops_util.get_key_counter_alg 2.16 to 2.21.
    """
    original = _random_ops_util.get_key_counter_alg

    def get_key_counter_alg(seed: Any, alg: Any) -> Any:
        return original(replaced(seed) if _asks_keras() else seed, alg)

    _random_ops_util.get_key_counter_alg = get_key_counter_alg
    try:
        yield
    finally:
        _random_ops_util.get_key_counter_alg = original


def loop_counters(graph: tf.Graph) -> list[tf.Tensor] | None:
    """How often the loops around an op made here have turned, those outside first.

    The body and the condition of a v2 loop take its counter as their first argument. 2.16 to 2.21.

    Returns:
      A scalar for each loop inside `graph`. None if they do not say how often the op ran: the
      default graph is not inside `graph`, or the op is in a function, which may be called from
      anywhere, in a v1 loop, which has no counter, or in a vectorized map, where it runs once.
    """
    inside = outer_graphs(tf.compat.v1.get_default_graph())
    if tf.executing_eagerly() or graph not in inside:
        return None
    inside = inside[: inside.index(graph) + 1]
    if any(map(_is_in_v1_loop, inside)) or _is_on_stack(tuple(_parallel_for.__path__)):
        return None
    counters = []
    for inner in reversed(inside[:-1]):
        if isinstance(inner, _func_graphs.WhileBodyFuncGraph | _func_graphs.WhileCondFuncGraph):
            counters.append(inner.inputs[0])
        elif not isinstance(inner, _func_graphs.CondBranchFuncGraph):
            return None
    return counters


def _is_in_v1_loop(graph: tf.Graph) -> bool:
    context = graph._get_control_flow_context()
    while context is not None and not context.IsWhileContext():
        context = context.outer_context
    return context is not None


def logging_hook_tensors(hook: tf.compat.v1.train.LoggingTensorHook) -> dict[str, Any]:
    """The tensors, by tag, that a LoggingTensorHook was made with (2.16 to 2.21)."""
    return hook._tensors


def set_logging_hook_tensors(
    hook: tf.compat.v1.train.LoggingTensorHook, tensors: dict[str, tf.Tensor]
) -> None:
    """Points a LoggingTensorHook at other tensors, before its `begin` (2.16 to 2.21)."""
    hook._tensors = tensors


def last_loss_reduction(graph: tf.Graph) -> str | None:
    """The `reduction` of the last `tf.compat.v1.losses` call in `graph`, else None (2.16)."""
    return graph._last_loss_reduction


@contextlib.contextmanager
def sync_replicas_refused(message: str) -> Iterator[None]:
    """Inside, a SyncReplicasOptimizer raises: it has queues, and an op that waits for them.

    Neither can be in a loop's body, and it would fail there with a message that says nothing.
    Builds hold a lock. 2.16 to 2.21.
    """
    owner = tf.compat.v1.train.SyncReplicasOptimizer
    original = owner.apply_gradients

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise ValueError(message)

    owner.apply_gradients = refuse
    try:
        yield
    finally:
        owner.apply_gradients = original


def make_callable(
    session: tf.compat.v1.Session, fetches: Sequence[Any], feeds: Sequence[tf.Tensor]
) -> Callable[..., list]:
    """A function of arrays, of the dtypes of `feeds`, that runs `fetches` and returns a list.

    The public `Session.make_callable` goes through all of `Session.run` if anything is fed: 0.1 ms
    of Python a call. `_do_call` adds to an error where the program made the op. 2.16 to 2.21.
    """
    # A callable knows no composite tensors, and nothing that is fed as well.
    is_simple = all(isinstance(fetch, tf.Tensor | tf.Operation) for fetch in fetches)
    if not is_simple or not {id(feed) for feed in feeds}.isdisjoint(map(id, fetches)):
        return session.make_callable(list(fetches), feed_list=list(feeds))
    tensors = list(dict.fromkeys(f.name for f in fetches if isinstance(f, tf.Tensor)))
    options = _config_pb2.CallableOptions(
        feed=[feed.name for feed in feeds],
        fetch=tensors,
        target=[fetch.name for fetch in fetches if isinstance(fetch, tf.Operation)],
    )
    places = [tensors.index(f.name) if isinstance(f, tf.Tensor) else None for f in fetches]
    run = session._make_callable_from_options(options)

    def call(*values: Any) -> list:
        results = session._do_call(run, *values)
        return [None if place is None else results[place] for place in places]

    return call


class InterruptibleSession(tf.compat.v1.Session):
    """A session whose calls can be given up: one to a server that is gone never returns.

    `_do_call` is where all calls pass, also those of callables, which tell the server when they are
    garbage, unless `_closed` is set. 2.16 to 2.21.

    Attributes:
      wait: called with an event that is set when a call, which another thread makes, has returned;
        what it raises ends the waiting, and the use of the session. None makes plain calls.
    """

    def __init__(
        self,
        target: str,
        graph: tf.Graph,
        config: tf.compat.v1.ConfigProto,
        wait: Callable[[threading.Event], None] | None,
    ) -> None:
        """Opens it; the first call reaches the server."""
        super().__init__(target, graph=graph, config=config)
        self.wait = wait

    def give_up(self) -> None:
        """Tells nobody any more that it, or a callable of its, is not needed."""
        self._closed = True

    def close(self) -> None:
        """Closes it; that the server is gone, perhaps for another, does not matter."""
        if self._closed or sys.is_finalizing():  # Then no thread starts any more.
            return
        with contextlib.suppress(tf.errors.UnavailableError, tf.errors.AbortedError):
            self._wait_for(super().close)

    def _do_call(self, fn: Callable, *args: Any) -> Any:
        return self._wait_for(super()._do_call, fn, *args)

    def _wait_for(self, function: Callable, *args: Any) -> Any:
        if self.wait is None:
            return function(*args)
        is_done, outcome = threading.Event(), concurrent.futures.Future[Any]()

        def call() -> None:
            try:
                outcome.set_result(function(*args))
            except BaseException as error:
                outcome.set_exception(error)
            is_done.set()

        # A thread of a pool would be waited for when the process ends.
        threading.Thread(target=call, daemon=True).start()
        try:
            self.wait(is_done)
        except BaseException:
            self.give_up()
            raise
        return outcome.result()


def open_session(
    target: str,
    graph: tf.Graph,
    config: tf.compat.v1.ConfigProto,
    wait: Callable[[threading.Event], None] | None,
) -> tf.compat.v1.Session:
    """A session on a graph; an `InterruptibleSession` if there is a way to wait for its calls."""
    if wait is None:
        return tf.compat.v1.Session(target, graph=graph, config=config)
    return InterruptibleSession(target, graph, config, wait)


def last_step_of(hook: tf.compat.v1.train.StopAtStepHook) -> int | None:
    """The step at which a StopAtStepHook stops; None before its session is there (2.16)."""
    return hook._last_step


def set_steps_per_run(hook: tf.compat.v1.train.SessionRunHook, steps: int) -> None:
    """Tells a stock hook that counts steps how many a session call runs (2.16 to 2.21)."""
    if hasattr(hook, "_set_steps_per_run"):
        hook._set_steps_per_run(steps)


@contextlib.contextmanager
def listening(
    hook: tf.compat.v1.train.CheckpointSaverHook,
    first: Sequence[tf.compat.v1.train.CheckpointSaverListener],
    last: Sequence[tf.compat.v1.train.CheckpointSaverListener],
) -> Iterator[None]:
    """Inside, more listeners are told of a CheckpointSaverHook's saves, around its own.

    It takes listeners only when it is made, and may be used for another training. 2.16 to 2.21.
    """
    before = hook._listeners
    hook._listeners = [*first, *before, *last]
    try:
        yield
    finally:
        hook._listeners = before


def step_timer(hook: tf.compat.v1.train.SessionRunHook) -> tuple[int, int | None] | None:
    """How many steps a stock hook lets pass, and the step at which it last acted (2.16 to 2.21).

    None if it counts seconds or nothing; the step is None if it acts on the next call anyhow.
    """
    timer: Any = getattr(hook, "_timer", None)
    every_steps = getattr(timer, "_every_steps", None)
    if every_steps is None:
        return None
    is_first_call = getattr(hook, "_next_step", 0) is None
    return every_steps, None if is_first_call else timer.last_triggered_step()


def tell_next_step(hook: tf.compat.v1.train.SessionRunHook, step: int) -> None:
    """Tells a stock hook which step the next session call ends on (2.16 to 2.21).

    SummarySaverHook and ProfilerHook take a call for one step.
    """
    if getattr(hook, "_next_step", None) is not None:
        hook._next_step = step


def tell_steps_so_far(hook: tf.compat.v1.train.LoggingTensorHook, steps: int) -> None:
    """Tells a LoggingTensorHook, which counts session calls, how many steps ran (2.16 to 2.21)."""
    hook._iter_count = steps


def final_ops(hook: tf.compat.v1.train.FinalOpsHook) -> Any:
    """What a FinalOpsHook runs when training ends (2.16 to 2.21)."""
    return hook._final_ops


def summary_tensors(hook: tf.compat.v1.train.SummarySaverHook) -> list[tf.Tensor]:
    """The serialized summaries that a SummarySaverHook writes (2.16 to 2.21)."""
    return hook._get_summary_op() or []


def set_summary_tensors(
    hook: tf.compat.v1.train.SummarySaverHook, tensors: list[tf.Tensor]
) -> None:
    """Points a SummarySaverHook at other tensors (2.16 to 2.21)."""
    hook._summary_op = tensors


def copies(variable: tf.Variable) -> Sequence[tf.Variable]:
    """The copies of a variable, one a replica; a variable that is not distributed is its own.

    `DistributedValues` has `values` in public; CentralStorage wraps the one copy. 2.16 to 2.21.
    """
    if isinstance(variable, tf.distribute.DistributedValues):
        return variable.values
    return (getattr(variable, "_v", variable),)


def slice_of(variable: tf.Variable) -> Any:
    """Of a part of a partitioned variable: full_name, full_shape and var_offset; else None.

    Only a saver asks for it, and no public name tells. 2.16 to 2.21.
    """
    return variable._get_save_slice_info()


def object_graph_keys(object_graph: bytes) -> dict[str, str]:
    """Variables' names to their keys in a checkpoint of `tf.train.Checkpoint`, off its own graph.

    The proto is TensorFlow's, with no public name for its class; 2.16 to 2.21.
    """
    nodes = _object_graph.TrackableObjectGraph.FromString(object_graph).nodes
    attributes = [attribute for node in nodes for attribute in node.attributes]
    return {a.full_name: a.checkpoint_key for a in attributes if a.full_name}


_MULTI_WORKER_TYPES = (
    _multi_worker.CollectiveAllReduceStrategy,
    _multi_worker.CollectiveAllReduceStrategyV1,
)


def is_multi_worker(strategy: tf.distribute.Strategy) -> bool:
    """Whether it is a MultiWorkerMirroredStrategy of several workers, of v1 or of v2.

    The public classes have no base in common; 2.16 to 2.21.
    """
    if not isinstance(strategy, _MULTI_WORKER_TYPES):
        return False
    return strategy.num_replicas_in_sync > len(strategy.extended.worker_devices)


def make_multi_worker_mirrored(
    resolver: Any, options: Any, device_type: str, num_devices: int, number: int
) -> tf.distribute.MultiWorkerMirroredStrategy:
    """A MultiWorkerMirroredStrategy with so many devices on each worker, the nth of this process.

    By itself it takes one CPU, or all GPUs, off the eager context, and its groups of devices have
    the keys of those of other strategies. `_initialize_local_devices` of the extended class and
    `_collective_key_base` 2.16 to 2.21.
    """
    extended: Any = _multi_worker.CollectiveAllReduceExtended
    original = extended._initialize_local_devices

    def local_devices(self: Any, cluster_resolver: Any, worker_device: str) -> tuple:
        del self, cluster_resolver
        names = [f"{worker_device}/device:{device_type}:{i}" for i in range(num_devices)]
        return tuple(names), device_type

    strategy_class: Any = tf.distribute.MultiWorkerMirroredStrategy
    first_key = strategy_class._collective_key_base
    extended._initialize_local_devices = local_devices
    strategy_class._collective_key_base = first_key + 1000 * number
    try:
        return strategy_class(resolver, options)
    finally:
        strategy_class._collective_key_base = first_key
        extended._initialize_local_devices = original


def make_parameter_server(
    resolver: Any, devices: Sequence[str], place_variable: Callable[[tf.Operation], str]
) -> tf.distribute.Strategy:
    """A ParameterServerStrategy with these devices, of this task.

    By itself it takes one CPU, or all GPUs, and places variables in turns. `_compute_devices` and
    `_variable_device` of the extended class 2.16 to 2.21.
    """
    strategy = tf.compat.v1.distribute.experimental.ParameterServerStrategy(resolver)
    strategy.extended._compute_devices = list(devices)
    strategy.extended._variable_device = place_variable
    return strategy


def has_started_server(strategy: tf.distribute.Strategy) -> bool:
    """Whether a MultiWorkerMirroredStrategy that was made eagerly has started this task's server.

    Made in a graph, or after `disable_v2_behavior`, it has not. 2.16 to 2.21.
    """
    return bool(getattr(strategy.extended, "_std_server_started", False))


def metric_variables(metric: Any) -> list[Sequence[tf.Variable]]:
    """The TensorFlow variables behind a Keras metric's, each as its replicas' copies.

    Keras 3 wraps a `tf.Variable` in a variable of its own; a tf-keras variable is one.
    """
    return [copies(v if isinstance(v, tf.Variable) else v.value) for v in metric.variables]


def set_scaffold_parts(scaffold: tf.compat.v1.train.Scaffold, parts: dict[str, Any]) -> None:
    """Gives a Scaffold its parts, as finalizing it does, which finalizes the graph too (2.16)."""
    for name, part in parts.items():
        setattr(scaffold, f"_{name}", part)


def object_saveables(checkpoint: tf.train.Checkpoint) -> list[Any]:
    """What a v1 Saver of object-based checkpoints saves, as a Scaffold makes one when finalized.

    Finalizing a Scaffold finalizes the graph too. ObjectGraphView 2.16 to 2.21.
    """
    return _graph_view.ObjectGraphView(checkpoint).frozen_saveable_objects()


_file_writer_numbers = itertools.count()


def file_writer(directory: str) -> tf.compat.v1.summary.FileWriter:
    """The one that FileWriterCache has for `directory`, or a new one in a file of its own.

    The cache names a file after the second it is made in, and a later one of that second would
    take its place. 2.16 to 2.21.
    """
    cache = tf.compat.v1.summary.FileWriterCache
    with cache._lock, tf.Graph().as_default():
        if directory not in cache._cache:
            cache._cache[directory] = tf.compat.v1.summary.FileWriter(
                directory, filename_suffix=f".{os.getpid()}.{next(_file_writer_numbers)}"
            )
        return cache._cache[directory]


def close_file_writer(directory: str) -> None:
    """Closes the event file that FileWriterCache has for `directory`, and forgets it.

    In public the cache can only be cleared as a whole, with the writers of others. 2.16 to 2.21.
    """
    cache = tf.compat.v1.summary.FileWriterCache
    with cache._lock:
        writer = cache._cache.pop(directory, None)
    if writer is not None:
        writer.close()


@contextlib.contextmanager
def replica_reaches_outer_graphs() -> Iterator[None]:
    """Inside, `tf.init_scope` in a loop's body leaves neither the replica nor variable creators.

    Both belong to a graph and a thread, and a replica's thread enters them in the body alone. A
    variable that is lifted out of it, as those of tf-keras optimizers are, would not be one copy a
    replica. 2.16 to 2.21.
    """
    body, *around = outer_graphs(tf.compat.v1.get_default_graph())
    with contextlib.ExitStack() as stack:
        for graph in around:
            for name in ("_distribution_strategy_stack", "_variable_creator_stack"):
                stack.callback(setattr, graph, name, getattr(graph, name))
                setattr(graph, name, list(getattr(body, name)))
        yield


@contextlib.contextmanager
def checkpoint_initializers_outside_loops() -> Iterator[None]:
    """Inside, `init_from_checkpoint` in a loop's body makes its ops in the graph around the loop.

    It replaces a variable's initializer, which a session could not run inside the loop, and with
    CentralStorage it replaces that of the wrapper, which nobody runs. Builds hold a lock.
    checkpoint_utils._set_checkpoint_initializer 2.16 to 2.21.
    """
    original = _checkpoint_utils._set_checkpoint_initializer

    def outside(variable: Any, *args: Any, **kwargs: Any) -> None:
        with tf.init_scope():
            original(variable, *args, **kwargs)
        for copy in copies(variable) if hasattr(variable, "_v") else ():
            copy._initializer_op = variable._initializer_op

    _checkpoint_utils._set_checkpoint_initializer = outside
    try:
        yield
    finally:
        _checkpoint_utils._set_checkpoint_initializer = original


@contextlib.contextmanager
def savers_apart() -> Iterator[list[tf.Operation]]:
    """Inside, a v1 Saver that is made in a loop's body makes its ops in the graph around the loop.

    A session runs them, by names that the Saver keeps. And a Saver of a dict knows all copies of a
    variable, as one of a list does; it would restore the first. Builds hold a lock. 2.16 to 2.21.

    Yields:
      The ops that savers make: no step runs them.
    """
    owner = tf.compat.v1.train.Saver
    original = owner.build
    ops: list[tf.Operation] = []

    def build(self: Any) -> None:
        is_inside = is_loop_body(tf.compat.v1.get_default_graph())
        with tf.init_scope() if is_inside else contextlib.nullcontext():
            graph = tf.compat.v1.get_default_graph()
            num_ops_before = len(graph.get_operations())
            if isinstance(self._var_list, dict):
                self._var_list = {k: _as_saveable(v, k) for k, v in self._var_list.items()}
            original(self)
            ops.extend(graph.get_operations()[num_ops_before:])

    owner.build = build
    try:
        yield ops
    finally:
        owner.build = original


def _as_saveable(value: Any, name: str) -> Any:
    if not isinstance(value, tf.distribute.DistributedValues):
        return value
    (make_saveable,) = value._gather_saveables_for_checkpoint().values()
    return make_saveable(name)


@contextlib.contextmanager
def hashable_tensors() -> Iterator[None]:
    """Inside, tensors of a loop's body can be keys of a dict, as those of any v1 graph can.

    Without, `init_feed_dict={placeholder: value}` is an error there. 2.16 to 2.21.
    """
    original = tf.Tensor.__hash__

    def hash_tensor(self: tf.Tensor) -> int:
        graph = getattr(self, "graph", None)
        return original(self) if graph is None else id(self)

    tf.Tensor.__hash__ = hash_tensor
    try:
        yield
    finally:
        tf.Tensor.__hash__ = original


# --- TPU -----------------------------------------------------------------------------------------


def tpu_resolver(strategy: tf.distribute.Strategy) -> Any:
    """The resolver that a TPUStrategy was made with; that of v1 does not tell (2.16 to 2.21)."""
    return strategy.extended._tpu_cluster_resolver


def is_initialized_tpu(resolver: Any) -> bool:
    """Whether this process has initialized that TPU already, by whatever program (2.16 to 2.21)."""
    return str(resolver._tpu) in map(str, _tpu_strategy_util.get_initialized_tpu_systems())


def per_replica(strategy: tf.distribute.Strategy, values: Sequence[tf.Tensor]) -> Any:
    """One value for each replica, as an argument of `strategy.run`.

    In public only strategies of TF 2 have it. 2.16 to 2.21.
    """
    return strategy.extended._experimental_distribute_values_from_function(
        lambda context: values[context.replica_id_in_sync_group]
    )


def is_in_tpu_program(tensor: tf.Tensor) -> bool:
    """Whether `tensor` is part of a TPU's program: nothing outside can use it (2.16 to 2.21)."""
    return _TPU_PROGRAM in tensor.op.node_def.attr


def free_tpu_handles(graph: tf.Graph) -> None:
    """Lets the variables that a TPU's program takes in wait for nothing that is part of it.

    A variable that is first used under control dependencies waits for them, although it is only
    handed in; the program as a whole would wait for itself. 2.16 to 2.21.
    """
    for op in graph.get_operations():
        if op.type == "TPUReplicatedInput" and op.outputs[0].dtype == tf.resource:
            op._remove_all_control_inputs()


@contextlib.contextmanager
def summary_ops_replaced(make: Callable[..., Any]) -> Iterator[None]:
    """Inside, a call of a function that makes a v1 summary's op is one of `make`.

    `tf.compat.v1.summary` calls them, and looks at nothing of what they return. `make` is given the
    function and its arguments. Builds hold a lock. gen_logging_ops 2.16 to 2.21.
    """
    with contextlib.ExitStack() as stack:
        for name in _SUMMARY_OPS:
            original = getattr(gen_logging_ops, name)
            stack.callback(setattr, gen_logging_ops, name, original)
            setattr(gen_logging_ops, name, functools.partial(make, original))
        yield


_SUMMARY_OPS = (
    "audio_summary_v2",
    "histogram_summary",
    "image_summary",
    "merge_summary",
    "scalar_summary",
    "tensor_summary_v2",
)


# --- Keras ---------------------------------------------------------------------------------------


def is_made_by_keras(op: tf.Operation) -> bool:
    """Whether Keras 3 or tf-keras code made `op`, read off the Python stack that it keeps."""
    folders = _keras_folders()
    return bool(folders) and any(frame.filename.startswith(folders) for frame in op.traceback)


def is_called_by_keras(*parts: str) -> bool:
    """Whether Keras 3 or tf-keras code, or only these folders of it, is on this thread's stack."""
    folders = _keras_folders()
    if parts:
        folders = tuple(os.path.join(f, "src", part) + os.sep for f in folders for part in parts)
    return bool(folders) and _is_on_stack(folders)


def _asks_keras() -> bool:
    """Whether Keras itself calls TensorFlow here, and not a user's code that Keras calls."""
    inside = (os.path.dirname(tf.__file__), os.path.dirname(__file__))
    frame: types.FrameType | None = sys._getframe()
    while frame is not None and frame.f_code.co_filename.startswith(inside):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(_keras_folders() or ("?",))


_TENSORFLOW = os.path.dirname(os.path.abspath(tf.__file__)) + os.sep
_TF_DATA = os.path.join(_TENSORFLOW, "python", "data") + os.sep


@contextlib.contextmanager
def ops_of_datasets_in(scope: str) -> Iterator[None]:
    """Inside, what tf.data makes for itself in the default graph is named `scope/...`.

    A dataset has constants for its arguments, such as `count` and `step`, whose names a variable
    of the model would not get any more. What the program makes itself keeps its name.
    Every op and name scope gets its name of `Graph.unique_name`, which is public; the folder of
    tf.data is not. 2.16 to 2.21.
    """
    graph = tf.compat.v1.get_default_graph()
    original = graph.unique_name

    def unique_name(name: str, mark_as_used: bool = True) -> str:
        is_in_scope = f"{graph.get_name_scope()}/".startswith(f"{scope}/")
        if not is_in_scope and _is_made_by_tf_data():
            name = f"{scope}/{name}"
        return original(name, mark_as_used)

    graph.unique_name = unique_name
    try:
        yield
    finally:
        del graph.unique_name


def _is_made_by_tf_data() -> bool:
    """Whether tf.data comes before any code outside of TensorFlow, up the stack."""
    frame: types.FrameType | None = sys._getframe(2)
    # A name scope is a context manager: `contextlib` is on the stack too.
    inside = (_TENSORFLOW, contextlib.__file__)
    while frame is not None and frame.f_code.co_filename.startswith(inside):
        if frame.f_code.co_filename.startswith(_TF_DATA):
            return True
        frame = frame.f_back
    return False


def _is_on_stack(folders: tuple[str, ...]) -> bool:
    frame: types.FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_filename.startswith(folders):
            return True
        frame = frame.f_back
    return False


def _keras_folders() -> tuple[str, ...]:
    return tuple(
        os.path.dirname(sys.modules[name].__file__ or "") + os.sep
        for name in ("keras", "tf_keras")
        if name in sys.modules
    )


@contextlib.contextmanager
def fresh_keras_names() -> Iterator[None]:
    """Inside, Keras 3 names its first Dense layer `dense` again, as in a new process.

    The counters belong to the thread and only ever count up, so that a model built twice would
    get other variable names and not match its checkpoint; `clear_session` would also throw away
    the user's models. `keras.src...global_state` since Keras 3.0.
    """
    state = sys.modules.get("keras.src.backend.common.global_state")
    if state is None:
        yield
        return
    counters = state.get_global_attribute("object_name_uids")
    state.set_global_attribute("object_name_uids", None)
    try:
        yield
    finally:
        state.set_global_attribute("object_name_uids", counters)


@contextlib.contextmanager
def tf_keras_names_by_thread() -> Iterator[None]:
    """Inside, tf-keras numbers the layers of each replica, which has a thread, on their own.

    It numbers those of a graph, so the first replica's names would depend on where replicas wait
    for each other in `model_fn`. Builds hold a lock. tf-keras 2.16 to 2.21.
    """
    backend = sys.modules.get("tf_keras.src.backend")
    maps: dict[tuple[int, tf.Graph], Any] = {}

    def map_of_thread() -> Any:
        key = threading.get_ident(), tf.compat.v1.get_default_graph()
        return maps.setdefault(key, collections.defaultdict(int))

    original = getattr(backend, "get_default_graph_uid_map", None)
    if original is not None:
        backend.get_default_graph_uid_map = map_of_thread  # type: ignore[union-attr]
    try:
        yield
    finally:
        if original is not None:
            backend.get_default_graph_uid_map = original  # type: ignore[union-attr]


@contextlib.contextmanager
def keras_policy(name: str) -> Iterator[None]:
    """Inside, layers of `tf.keras`, Keras 3 and tf-keras have this dtype policy.

    All of it is public but whether tf-keras has policies at all: it refuses one, and its layers
    follow their inputs, after `tf.compat.v1.disable_v2_behavior()`. That of Keras 3 is the
    thread's, that of tf-keras the process's. tf-keras 2.16 to 2.21.
    """
    libraries = [tf.keras, *(sys.modules.get(name) for name in ("keras", "tf_keras"))]
    modules = {id(m): m for m in (getattr(lib, "mixed_precision", None) for lib in libraries) if m}
    utils = sys.modules.get("tf_keras.src.engine.base_layer_utils")
    with contextlib.ExitStack() as stack:
        for module in modules.values():
            is_tf_keras = module.__name__.startswith("tf_keras")
            if is_tf_keras and utils is not None and not utils.v2_dtype_behavior_enabled():
                continue
            stack.callback(module.set_global_policy, module.global_policy())
            module.set_global_policy(name)
        yield


# --- Gradients -----------------------------------------------------------------------------------

_thread = threading.local()


@contextlib.contextmanager
def gradient_reduction(reduction: str) -> Iterator[None]:
    """Inside, on this thread, optimizers reduce over replicas by `reduction`: "mean" or "sum"."""
    before = getattr(_thread, "reduction", None)
    _thread.reduction = reduction
    try:
        yield
    finally:
        _thread.reduction = before


@contextlib.contextmanager
def mean_gradients(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Inside, every optimizer applies the mean over the replicas of `strategy`, not the sum.

    v1 and Keras optimizers sum gradients over replicas, and expect that somebody scaled the loss.
    A plain optimizer in a `model_fn` knows nothing of replicas, so its gradients are scaled where
    they enter the sum. The places are methods of TensorFlow and Keras classes, replaced while one
    graph is built (builds hold a lock) and for the replicas of that one strategy only.
    Optimizer.apply_gradients 2.16 to 2.21; TFOptimizer since Keras 3.0; tf-keras 2.16 to 2.21.
    """
    num_replicas = strategy.num_replicas_in_sync

    def scale(grads_and_vars: Any) -> list:
        grads_and_vars = list(grads_and_vars)
        is_ours = tf.distribute.get_strategy() is strategy
        if num_replicas == 1 or not is_ours or tf.distribute.in_cross_replica_context():
            return grads_and_vars
        factor = 1.0 if _reduction() == "sum" else 1.0 / num_replicas
        return [(scaled(grad, factor), var) for grad, var in grads_and_vars]

    with contextlib.ExitStack() as stack:
        for owner, name, is_method in _gradient_sums():
            original = getattr(owner, name)
            stack.callback(setattr, owner, name, original)
            if owner is _v1_optimizer.Optimizer:
                original = _also_across_replicas(original)
            setattr(owner, name, _with_scaled_gradients(original, scale, is_method))
        yield


def _also_across_replicas(apply_gradients: Callable) -> Callable:
    """A v1 optimizer's `apply_gradients`, also where no replica is current: one for all of them.

    There it raises, and `_distributed_apply`, which it names instead, sums over replicas: each is
    given its part of the gradient.
    """

    def apply(self: Any, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        if not (tf.distribute.has_strategy() and tf.distribute.in_cross_replica_context()):
            return apply_gradients(self, grads_and_vars, *args, **kwargs)
        strategy = tf.distribute.get_strategy()
        factor = 1.0 / strategy.num_replicas_in_sync
        parts = []
        for grad, var in grads_and_vars:
            if grad is not None:
                part = scaled(grad, factor)
                parts.append((_on_each_replica(strategy, part), var))
        return self._distributed_apply(strategy, parts, *args, **kwargs)

    return apply


def _on_each_replica(strategy: tf.distribute.Strategy, value: Any) -> Any:
    return strategy.experimental_distribute_values_from_function(lambda _: value)


@contextlib.contextmanager
def sync_replicas_in_line() -> Iterator[None]:
    """Inside, the optimizer in a SyncReplicasOptimizer applies gradients as a part of the step.

    The other collects those of several workers, for a thread of the chief to apply. With one worker
    there is nothing to collect, and what a thread does is in no loop, in no order with a save, and
    in no resumed run. Its hook finds what it looks for. Builds hold a lock. 2.16 to 2.21.
    """
    owner = tf.compat.v1.train.SyncReplicasOptimizer
    original = owner.apply_gradients
    owner.apply_gradients = _apply_in_line
    try:
        yield
    finally:
        owner.apply_gradients = original


def _apply_in_line(
    self: tf.compat.v1.train.SyncReplicasOptimizer,
    grads_and_vars: Iterable[tuple[Any, tf.Variable]],
    global_step: tf.Variable | None = None,
    name: str | None = None,
) -> tf.Operation:
    if self._replicas_to_aggregate not in (1, tf.distribute.get_strategy().num_replicas_in_sync):
        raise ValueError(
            f"`replicas_to_aggregate` ({self._replicas_to_aggregate}) of SyncReplicasOptimizer "
            "must be 1 on one worker, or the number of its replicas. Pass 1."
        )
    if global_step is None:
        raise ValueError(
            "`global_step` of SyncReplicasOptimizer.apply_gradients must not be None. Pass "
            "tf.compat.v1.train.get_global_step()."
        )
    train_op = self._opt.apply_gradients(grads_and_vars, global_step, name)
    if self._variable_averages is not None:
        with tf.control_dependencies([train_op]):
            train_op = self._variable_averages.apply(self._variables_to_average)
    with tf.init_scope():
        self.local_step_init_op = self.chief_init_op = tf.no_op()
        self.ready_for_local_init_op = tf.constant([], tf.string)
        self._global_step = copies(global_step)[0]
        # The hook puts tokens into it, for which no step waits.
        self._sync_token_queue = tf.queue.FIFOQueue(-1, global_step.dtype.base_dtype, shapes=())
    self._gradients_applied = True
    return train_op


def _reduction() -> str:
    """Says "sum" where a CrossShardOptimizer asks for it or the last v1 loss was itself a sum."""
    asked = getattr(_thread, "reduction", None)
    if asked is None:
        last = last_loss_reduction(tf.compat.v1.get_default_graph())
        return "sum" if last == tf.compat.v1.losses.Reduction.SUM else "mean"
    return asked


def _gradient_sums() -> Iterator[tuple[Any, str, bool]]:
    yield _v1_optimizer.Optimizer, "apply_gradients", True
    if keras := sys.modules.get("keras.src.backend.tensorflow.optimizer"):
        yield keras.TFOptimizer, "_all_reduce_sum_gradients", True
    if tf_keras := sys.modules.get("tf_keras.src.optimizers.utils"):
        yield tf_keras, "all_reduce_sum_gradients", False


def _with_scaled_gradients(original: Callable, scale: Callable, is_method: bool) -> Callable:
    if is_method:

        def method(self: Any, grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
            return original(self, scale(grads_and_vars), *args, **kwargs)

        return method

    def function(grads_and_vars: Any, *args: Any, **kwargs: Any) -> Any:
        return original(scale(grads_and_vars), *args, **kwargs)

    return function


def scaled(grad: Any, factor: float) -> Any:
    """A gradient (a tensor, IndexedSlices or None) times a factor, to be summed over replicas."""
    if grad is None:
        return None
    if isinstance(grad, tf.IndexedSlices):
        return tf.IndexedSlices(scaled(grad.values, factor), grad.indices, grad.dense_shape)
    # An all-reduce looks for the variables behind what it sums, up to the first op without a
    # gradient, and fails on those of other replicas.
    return tf.stop_gradient(grad * tf.cast(factor, grad.dtype))
