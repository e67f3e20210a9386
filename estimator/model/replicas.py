"""Calls `model_fn` once per replica, with only the arguments that it names."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from estimator import _tf
from estimator.cluster.collectives import replica_id
from estimator.config.checks import (
    WrongTypeError,
    arguments_named,
    check_instance,
    check_needs_only,
    parameters_of,
)
from estimator.input.conversion import with_own_keys
from estimator.model.failure_hints import (
    explaining_batch_size,
    explaining_failure,
    explaining_foreign_strategy,
    explaining_foreign_tensors,
)
from estimator.model.outside_values import OutsideValues
from estimator.model.precision import compiling, computing_in
from estimator.model.reduction import keep_local, keep_metrics_local, place_metrics, take_out
from estimator.model.scaffold import build_scaffold
from estimator.model.variable_names import marking_get_variable, without_mark
from estimator.randomness.seed import python_seed
from estimator.rewrite.hoist import Hoist, Waits, build_table_initializers
from estimator.rewrite.initial_values import lifted, without_order
from estimator.rewrite.updates import initializers_of, wiring_branches
from estimator.spec import EstimatorSpec, ModeKeys, TPUEstimatorSpec, with_none_bound

MODEL_FN_ARGUMENTS = ("features", "labels", "mode", "params", "config")

# One build at a time: the attributes that `_tf` replaces, Python's `random`, garbage collection and
# tf-keras's dtype policy are global to the process.
BUILD_LOCK = threading.RLock()


@dataclasses.dataclass(frozen=True)
class Model:
    """A `model_fn` and the arguments that are the same in every mode.

    Attributes:
      model_fn: the user's function; returns a spec.
      params: passed to `model_fn`.
      config: passed to `model_fn`.
      trained_on: the features of the last training, as type specs; None before the first.
      outside_values: the values that `model_fn` reads besides its arguments; None if nobody asks.
    """

    model_fn: Callable
    params: Any
    config: Any
    trained_on: Any = None
    outside_values: OutsideValues | None = None

    def __call__(self, features: Any, labels: Any, mode: str) -> EstimatorSpec | TPUEstimatorSpec:
        """Calls `model_fn` in the default graph and checks what it returns.

        Raises:
          ValueError: there are labels that `model_fn` does not take, it uses what was made outside
            of it, or the spec is for another mode.
          TypeError: `model_fn` does not return a spec.
        """
        self._check_labels(labels)
        takes_labels = "labels" in argument_names(self.model_fn)
        outside = self.outside_values
        lacks_labels = labels is None and takes_labels and mode != ModeKeys.PREDICT
        with (
            explaining_batch_size(self.params),
            explaining_failure(self.trained_on, features, lacks_labels=lacks_labels),
            _tf.fresh_keras_names(),
            python_seed(self.config.tf_random_seed),
            computing_in(self.config.compute_dtype),
            explaining_foreign_tensors(),
            contextlib.nullcontext() if outside is None else outside.noting_results(),
        ):
            spec = self.call(features, labels, mode)
        check_spec(spec, mode)
        return spec

    def call(self, features: Any, labels: Any, mode: str) -> Any:
        """Calls `model_fn` with only the arguments that it takes.

        Raises:
          ValueError: there are labels and it does not take them.
        """
        self._check_labels(labels)
        given = {
            "features": with_own_keys(features),
            "labels": with_own_keys(labels),
            "mode": mode,
            "params": self.params,
            "config": self.config,
        }
        names = argument_names(self.model_fn)
        return self.model_fn(**{name: given[name] for name in names})

    def _check_labels(self, labels: Any) -> None:
        if labels is not None and "labels" not in argument_names(self.model_fn):
            raise ValueError(
                "`model_fn` does not take `labels`, but `input_fn` returned some. Add the argument "
                "`labels` to `model_fn`, or return only features from `input_fn`."
            )


@dataclasses.dataclass(frozen=True)
class Replica:
    """The result of one replica's `model_fn`.

    Attributes:
      spec: the result as an EstimatorSpec.
      host_call: a TPUEstimatorSpec's (function, tensors), else None.
      scaffold_fn: a TPUEstimatorSpec's `scaffold_fn`, else None.
      eval_metrics: a TPUEstimatorSpec's (function, tensors) if it was not called yet, else None.
    """

    spec: EstimatorSpec
    host_call: tuple[Callable, Any] | None = None
    scaffold_fn: Callable[[], tf.compat.v1.train.Scaffold] | None = None
    eval_metrics: tuple[Callable, Any] | None = None


@dataclasses.dataclass(frozen=True)
class Replicas:
    """The results of all replicas.

    Attributes:
      outputs: the replicas' results, in order.
      new_ops: the ops that they made in the default graph, in order of creation, except the
        variables' initializers and savers' ops.
      keras_variables: handles of the variables that Keras layers and optimizers made.
      waits: in a loop's body, the ops outside the loop that each new op waits for.
      variables: the variables that they made.
      hoist: in a loop's body, copies what they made there out of the loop; else None.
    """

    outputs: list[Replica]
    new_ops: list[tf.Operation]
    keras_variables: list[tf.Tensor]
    waits: Waits = dataclasses.field(default_factory=dict)
    variables: list[tf.Variable] = dataclasses.field(default_factory=list)
    hoist: Hoist | None = None


def argument_names(model_fn: Callable) -> tuple[str, ...]:
    """Returns which of `features, labels, mode, params, config` the function takes."""
    return arguments_named("model_fn", model_fn, MODEL_FN_ARGUMENTS)


def check_model_fn(model_fn: Any) -> None:
    """Raises an error if `model_fn` cannot be called as a model function."""
    check_instance("model_fn", model_fn, Callable, "a function that returns an EstimatorSpec")
    if "features" not in argument_names(model_fn):
        names = ", ".join(parameters_of("model_fn", model_fn))
        raise ValueError(f"`model_fn` must take an argument `features`; it takes ({names}).")
    check_needs_only("model_fn", model_fn, MODEL_FN_ARGUMENTS)


def check_takes_params(model_fn: Callable, params: Any) -> None:
    """Raises an error if there are `params` that `model_fn` does not take."""
    if params and "params" not in argument_names(model_fn):
        raise ValueError(
            f"`params` ({params!r}) are passed, but `model_fn` does not take them. Give it an "
            "argument `params`, or leave them out."
        )


def check_spec(spec: Any, mode: str) -> None:
    """Raises an error unless `spec` is an EstimatorSpec or TPUEstimatorSpec for `mode`."""
    if not isinstance(spec, EstimatorSpec | TPUEstimatorSpec):
        hint = " Does it lack a `return`?" if spec is None else ""
        raise WrongTypeError(
            f"`model_fn` returned {spec!r} in mode {mode!r}. It must return an EstimatorSpec or a "
            f"TPUEstimatorSpec.{hint}"
        )
    if spec.mode != mode:
        raise ValueError(
            f"`model_fn` was called with mode {mode!r} and returned a spec whose mode is "
            f"{spec.mode!r}. Pass the argument `mode` on to the spec."
        )


def build_replicas(
    strategy: tf.distribute.Strategy, model: Model, batches: Sequence[tuple[Any, Any]], mode: str
) -> Replicas:
    """Builds the model on each replica of `strategy`; replica i gets `batches[i]`.

    Args:
      strategy: the strategy, whose scope the caller has entered.
      model: the model.
      batches: (features, labels) for each replica.
      mode: a ModeKeys value.
    """

    @tf.autograph.experimental.do_not_convert
    def build_one() -> Replica:
        features, labels = batches[replica_id() % len(batches)]
        with _tf.replica_reaches_outer_graphs(), marking_get_variable():
            spec = model(features, labels, mode)
            if isinstance(spec, EstimatorSpec):
                return Replica(spec)
            # Calls a TPUEstimatorSpec's `metric_fn` here, so that its variables belong to this
            # replica.
            plain = spec.replace(scaffold_fn=None, host_call=None).as_estimator_spec()
            return Replica(plain, with_none_bound(spec.host_call), spec.scaffold_fn)

    with (
        watching_variables(mode) as watch,
        # tf-keras has one policy per process, which concurrent replicas would reset for each other.
        computing_in(model.config.compute_dtype),
        # Python's `random` is the process's as well: here, it is restored after all replicas.
        python_seed(model.config.tf_random_seed),
        compiling(model.config.jit_compile),
        _waits_noted(tf.compat.v1.get_default_graph()) as waits,
        _tf.savers_apart() as saver_ops,
        explaining_foreign_strategy(),  # The replicas' threads may raise the error in this one.
    ):
        outputs = strategy.extended.call_for_each_replica(build_one)
        replicas = list(strategy.experimental_local_results(outputs))
        hoist = _make_hoist(watch, waits)
        replicas[0] = with_one_scaffold(replicas, hoist)
        if hoist is not None:
            build_table_initializers(hoist)
    apart = set(saver_ops)
    for replica in replicas:
        keep_metrics_local(replica.spec.eval_metric_ops)
    place_metrics(watch.metric_variables, [replica.spec for replica in replicas])
    return Replicas(
        outputs=replicas,
        new_ops=[op for op in watch.new_ops() if op not in apart],
        keras_variables=watch.keras_variables,
        waits=waits,
        variables=watch.variables,
        hoist=hoist,
    )


def _make_hoist(watch: VariableWatch, waits: Waits) -> Hoist | None:
    if not _tf.is_loop_body(watch.graph):
        return None
    return Hoist(waits, watch.num_ops_before, watch.lifted_ops)


def _waits_noted(graph: tf.Graph) -> contextlib.AbstractContextManager[Waits]:
    return _tf.noting_waits(graph) if _tf.is_loop_body(graph) else contextlib.nullcontext({})


def with_one_scaffold(replicas: Sequence[Replica], hoist: Hoist | None = None) -> Replica:
    """Returns the first replica, with one Scaffold for all of them that a session can use."""
    first = replicas[0]
    if first.scaffold_fn is None:
        made = [replica.spec.scaffold for replica in replicas]
    else:
        with tf.init_scope():  # Outside the loop and the replicas, where the session uses it.
            made = [first.scaffold_fn()]
        if not isinstance(made[0], tf.compat.v1.train.Scaffold):
            raise WrongTypeError(
                f"`scaffold_fn` ({first.scaffold_fn!r}) returned {made[0]!r}. It must return a "
                "tf.compat.v1.train.Scaffold."
            )
    one = build_scaffold(list({id(scaffold): scaffold for scaffold in made}.values()), hoist)
    return dataclasses.replace(first, spec=first.spec.replace(scaffold=one))


@dataclasses.dataclass(frozen=True)
class VariableWatch:
    """Records what is made in the default graph while models are built.

    Attributes:
      graph: the default graph.
      num_ops_before: the number of its ops before the block.
      keras_variables: handles of the variables that Keras layers and optimizers made.
      variables: all new variables.
      initializers: the initializers of the new variables.
      metric_variables: those of Keras 3 metrics in an evaluation, which are in no collection yet.
      lifted_ops: what initial values are made of in a loop's body, and its copies outside.
    """

    graph: tf.Graph
    num_ops_before: int
    keras_variables: list[tf.Tensor]
    variables: list[tf.Variable]
    initializers: set[tf.Operation]
    metric_variables: list[tf.Variable]
    lifted_ops: dict[tf.Operation, tf.Operation]

    def ops_before(self) -> list[tf.Operation]:
        """Returns the ops of the graph before the block."""
        return self.graph.get_operations()[: self.num_ops_before]

    def new_ops(self) -> list[tf.Operation]:
        """Returns the new ops so far, in order, except the variables' initializers."""
        ops = self.graph.get_operations()[self.num_ops_before :]
        return [op for op in ops if op not in self.initializers]


@contextlib.contextmanager
def watching_variables(mode: str) -> Iterator[VariableWatch]:
    """Creates variables in the block as replicas need them, and records what is made.

    Assignments of Keras in branches and loops run in training; elsewhere only those of metrics do.
    """
    graph = tf.compat.v1.get_default_graph()
    watch = VariableWatch(graph, len(graph.get_operations()), [], [], set(), [], {})
    metrics: set[Any] = set()

    def is_wanted(handle: tf.Tensor) -> bool:
        return mode == ModeKeys.TRAIN or handle.ref() in metrics

    def create_variable(next_creator: Callable, **kwargs: Any) -> tf.Variable:
        kwargs["name"] = without_mark(kwargs.get("name"))
        if _tf.is_called_by_keras("layers", "random", "engine"):
            kwargs.update(_rule_for_state(**kwargs))
        variable = _create_variable(next_creator, watch, **kwargs)
        # Includes initializers that the model replaces later, with values from a checkpoint.
        watch.initializers.update(initializers_of(variable))
        watch.variables.append(variable)
        if _tf.is_called_by_keras("metrics"):
            metrics.update(copy.handle.ref() for copy in _tf.copies(variable))
            if kwargs.get("collections") == []:
                # A tf-keras variable in no collection, which nothing else would initialize in a
                # session.
                keep_local(_tf.copies(variable))
            elif mode == ModeKeys.EVAL:
                # A saver that `model_fn` makes must not hold what no checkpoint has.
                take_out(_tf.copies(variable))
                watch.metric_variables.append(variable)
        if _tf.is_called_by_keras():
            watch.keras_variables.extend(copy.handle for copy in _tf.copies(variable))
        return variable

    with (
        tf.variable_creator_scope(create_variable),
        wiring_branches(watch.keras_variables, is_wanted),
        _tf.keras_control_flow_v2(),
        _tf.name_scopes_in_branches(),
    ):
        yield watch


def _create_variable(next_creator: Callable, watch: VariableWatch, **kwargs: Any) -> tf.Variable:
    """Creates a variable like `get_variable` does, also for code that was written for TF 2.

    An initial value made inside a loop's body is rebuilt in the graph around the loop: TensorFlow
    evaluates `get_variable` and callables there itself, but not a tensor, so that the variable's
    initializer would be part of the loop. A variable with a copy on each replica is entered in the
    graph's collections as one variable, not as its copies.
    """
    value: Any = kwargs.get("initial_value")
    if tf.is_tensor(value) and hasattr(value, "op") and _tf.is_loop_body(value.graph):
        value = lifted(value, watch.ops_before(), watch.lifted_ops)
    kwargs["initial_value"] = without_order(value)
    is_beside_another = kwargs.get("colocate_with") is not None
    # From a loop's body, TensorFlow would keep the device, but drop the colocation.
    with tf.init_scope() if is_beside_another else contextlib.nullcontext():
        variable = next_creator(**kwargs)
    copies = {id(copy) for copy in _tf.copies(variable)}
    if copies != {id(variable)}:
        _collect_as_one(variable, copies)
    return variable


def _rule_for_state(
    trainable: bool | None = None,
    aggregation: Any = tf.VariableAggregation.NONE,
    dtype: Any = tf.float32,
    **_: Any,
) -> dict[str, Any]:
    """Returns the distribution settings of a Keras layer's state that Keras 3 does not specify.

    Without them the first replica's value would be used, or CentralStorage would fail. Moving
    statistics are averaged when they are read, as in tf-keras; seeds are equal everywhere.
    """
    rules = tf.VariableAggregation
    if trainable or aggregation not in (None, rules.NONE):
        return {}
    rule = rules.MEAN if tf.as_dtype(dtype).is_floating else rules.ONLY_FIRST_REPLICA
    return {"synchronization": tf.VariableSynchronization.ON_READ, "aggregation": rule}


def _collect_as_one(variable: tf.Variable, copies: set[int]) -> None:
    keys = tf.compat.v1.GraphKeys
    with tf.init_scope():
        graph = tf.compat.v1.get_default_graph()
    for key in (keys.GLOBAL_VARIABLES, keys.TRAINABLE_VARIABLES, keys.LOCAL_VARIABLES):
        collection = graph.get_collection_ref(key)
        others = [v for v in collection if id(v) not in copies and v is not variable]
        if len(others) < len(collection):
            collection[:] = [*others, variable]
