"""`RunConfig`: how a model is run. Frozen, validated when made, changed with `replace`."""

from __future__ import annotations

import copy
import dataclasses
import os
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Final

import tensorflow as tf

from estimator.config.checks import (
    check_bool,
    check_choice,
    check_instance,
    check_int,
    check_limit,
    check_positive,
    check_type,
    checked_count,
    checked_window,
    parameters_of,
)
from estimator.config.cluster import CHIEF, MASTER, Cluster, read_cluster
from estimator.config.frozen import FrozenFields, check_fields, short_repr, write_fields
from estimator.config.loop_length import checked_loop_length
from estimator.config.strategy_names import check_strategies
from estimator.spec import ModeKeys

DEFAULT_SAVE_CHECKPOINTS_SECS: Final = 600
PS_PLACEMENTS: Final = ("round_robin", "by_size")
NAN_POLICIES: Final = ("raise", "stop", "skip", "ignore")
COMPUTE_DTYPES: Final = ("float32", "bfloat16")
PROTOCOLS: Final = ("grpc", "grpc+verbs")

# 0 and None mean never; for `keep_checkpoint_max` they mean that none is ever deleted.
_STEPS = ("save_summary_steps", "save_checkpoints_steps", "log_step_count_steps")
_BOOLS = ("resume_input", "checkpoint_save_graph_def", "jit_compile", "smoke", "async_checkpoints")
_NEVER_IF_ZERO = (*_STEPS, "save_checkpoints_secs", "keep_checkpoint_max")

# The default of the two checkpoint intervals, for which None (never) differs from unset.
_NOT_NAMED: Any = type("_NotNamed", (), {"__repr__": lambda self: "<not named>"})()


@dataclass(unsafe_hash=True, repr=False)
class RunConfig(FrozenFields):
    """Configures how a model is run: all fields of tf.estimator 2.15, and those after the `_`.

    An interval of 0 or None means never; it reads back as None. Equal configs have equal hashes.
    Fields cannot be changed, but a program may add attributes of its own. A subclass may override a
    property or a field with a property of its own, which is then used.

    Attributes:
      model_dir: the directory for checkpoints and event files; TF_CONFIG's if it names one.
      tf_random_seed: the seed of the graph.
      save_summary_steps: the number of steps between summaries.
      save_checkpoints_steps: the number of steps between checkpoints.
      save_checkpoints_secs: the number of seconds between checkpoints; 600 if neither interval is
        given. Giving both is an error. If both are never, only the end of training saves.
      session_config: a `tf.compat.v1.ConfigProto`, which leaves to `tf.config` what it does not
        set; None is the default, which has device filters in a task of a cluster.
      keep_checkpoint_max: the number of newest checkpoints to keep; 0 or None keeps all.
      keep_checkpoint_every_n_hours: keeps one checkpoint in this many hours forever; None keeps
        none.
      log_step_count_steps: the number of steps between logs of the speed and the loss; None also
        turns the progress bar off.
      train_distribute: the `tf.distribute` strategy for training.
      device_fn: called with each op of training, evaluation and prediction that nothing else places
        (a strategy with several devices does); returns the op's device as a string.
      protocol: the protocol of the cluster's servers: "grpc" or "grpc+verbs"; None means "grpc".
      eval_distribute: the strategy for evaluation and prediction.
      experimental_distribute: an object with `train_distribute` and `eval_distribute`, such as an
        old `DistributeConfig`, from which they are taken.
      experimental_max_worker_delay_secs: the maximum delay before a worker starts. Ignored: each
        worker starts as soon as the others are available.
      session_creation_timeout_secs: how long a worker waits for the chief's session, and an
        evaluator for a chief that is gone.
      checkpoint_save_graph_def: whether to write the graph with each checkpoint.
      strategy: the strategy for every mode: one of `STRATEGY_NAMES`, or a `tf.distribute` object.
      num_replicas: the number of replicas of a strategy given by name; None means one per GPU, or
        one without a GPU.
      iterations_per_loop: the number of steps in one session call, or its duration, such as "30s",
        "2m" or "1h", or "auto" for about a second. Loops always end where something is due.
      nan_policy: what happens when a loss or weight is not finite: "raise" an error, "stop"
        training without one, "skip" the step as if it had not changed any weight, or "ignore" it.
      communication_options: how "multi_worker_mirrored" reduces: a
        `tf.distribute.experimental.CommunicationOptions`; None means AUTO.
      ps_placement: the ps task for a variable: the next one ("round_robin"), or the one with the
        fewest bytes ("by_size").
      resume_input: whether training resumes its input at the position of the last checkpoint.
      profile_steps: two global steps; the steps after the first, up to the second, are profiled for
        TensorBoard's profiler.
      compute_dtype: "bfloat16" gives Keras layers the policy "mixed_bfloat16" while `model_fn` is
        called, in every mode, and enters a `tf.compat.v1.tpu.bfloat16_scope`: bfloat16 variables of
        `get_variable` are stored as float32. Handwritten layers compute in the type of their
        inputs: `tf.cast(features, config.compute_dtype)`.
      jit_compile: whether XLA compiles what it can of the model, in every mode. On a CPU it made
        small models slower.
      max_time_secs: the time after which a call of `train` stops, at the end of a loop; it is
        counted from before the first loop.
      peer_timeout_secs: in a cluster, a task that has not answered for this long (its machine may
        be down, stopped or disconnected) counts as lost; a task whose process has ended counts as
        lost at once.
      smoke: runs at most 2 steps of every method, and writes to a temporary directory instead of
        `model_dir` (or `export_dir_base`), which is deleted with the Estimator.
      cluster: the cluster, and this process's task in it, from TF_CONFIG.
      async_checkpoints: whether checkpoints are copied in memory and written by a thread while
        training goes on. `after_save` of listeners, and with it an evaluation, comes when the
        checkpoint is whole: at the end of a later loop. Not available with ps tasks.

    Raises:
      TypeError, ValueError: a field is wrong, or two fields exclude each other.
    """

    model_dir: str | None = None
    tf_random_seed: int | None = None
    save_summary_steps: int | None = 100
    save_checkpoints_steps: int | None = _NOT_NAMED
    save_checkpoints_secs: float | None = _NOT_NAMED
    session_config: tf.compat.v1.ConfigProto | None = field(default=None, hash=False)
    keep_checkpoint_max: int | None = 5
    keep_checkpoint_every_n_hours: float | None = 10000
    log_step_count_steps: int | None = 100
    train_distribute: tf.distribute.Strategy | None = None
    device_fn: Callable | None = field(default=None, hash=False)
    protocol: str | None = None
    eval_distribute: tf.distribute.Strategy | None = None
    experimental_distribute: Any = field(default=None, hash=False)
    experimental_max_worker_delay_secs: int | None = None
    session_creation_timeout_secs: float = 7200
    checkpoint_save_graph_def: bool = True
    _: KW_ONLY
    strategy: str | tf.distribute.Strategy | None = None
    num_replicas: int | None = None
    iterations_per_loop: int | str = 1
    nan_policy: str = "raise"
    resume_input: bool = True
    profile_steps: tuple[int, int] | None = None
    compute_dtype: str = "float32"
    jit_compile: bool = False
    max_time_secs: float | None = None
    smoke: bool = False
    cluster: Cluster = field(default_factory=read_cluster)
    ps_placement: str = "round_robin"
    communication_options: tf.distribute.experimental.CommunicationOptions | None = None
    peer_timeout_secs: float = 60
    async_checkpoints: bool = False

    def __post_init__(self) -> None:
        """Takes the strategies of `experimental_distribute`, normalizes the fields, checks them."""
        for name in ("train_distribute", "eval_distribute"):
            given = getattr(self.experimental_distribute, name, None)
            if given is not None and getattr(self, name) is not None:
                raise ValueError(
                    f"`{name}` ({getattr(self, name)!r}) and `experimental_distribute.{name}` "
                    f"({given!r}) exclude each other. Pass one of them."
                )
            if given is not None:
                write_fields(self, **{name: given})
        self._normalize()

    def _normalize(self) -> None:
        """Normalizes the fields, then checks them."""
        check_instance("cluster", self.cluster, Cluster, "a Cluster, by default TF_CONFIG's")
        if self.save_checkpoints_steps is self.save_checkpoints_secs is _NOT_NAMED:
            write_fields(self, save_checkpoints_secs=DEFAULT_SAVE_CHECKPOINTS_SECS)
        for name in _NEVER_IF_ZERO:
            value = getattr(self, name)
            if value is _NOT_NAMED or (value == 0 and not isinstance(value, bool)):
                write_fields(self, **{name: None})
        loop = checked_loop_length("iterations_per_loop", self.iterations_per_loop)
        write_fields(self, iterations_per_loop=loop)
        if isinstance(self.compute_dtype, tf.DType):
            write_fields(self, compute_dtype=self.compute_dtype.name)
        if isinstance(self.model_dir, os.PathLike):
            write_fields(self, model_dir=os.fspath(self.model_dir))
        self._take_model_dir()
        if self.session_config is None:
            write_fields(self, session_config=_default_session_config(self.cluster))
        self._check()

    def replace(self, **changes: Any) -> Any:
        """Returns a checked copy with other values of some fields; does not read the cluster again.

        Giving one checkpoint interval resets the other.

        Raises:
          TypeError, ValueError: a name is unknown, or a value is wrong.
        """
        check_fields(self, changes)
        if changes.get("save_checkpoints_steps") is not None:
            changes.setdefault("save_checkpoints_secs", None)
        elif changes.get("save_checkpoints_secs") is not None:
            changes.setdefault("save_checkpoints_steps", None)
        if "model_dir" in changes:  # Only a newly made config must agree with TF_CONFIG.
            changes.setdefault("cluster", dataclasses.replace(self.cluster, model_dir=None))
        if "cluster" in changes and self.session_config == _default_session_config(self.cluster):
            changes.setdefault("session_config", None)
        changed = copy.copy(self)
        write_fields(changed, **changes)
        changed._normalize()  # noqa: SLF001  (of its own class)
        return changed

    def obeyed_cluster(self) -> Cluster:
        """Returns the cluster according to the properties, which a subclass may override."""
        told = self.cluster_spec.as_dict()
        changes: dict[str, Any] = {}
        if told != tf.train.ClusterSpec(self.cluster.named_cluster_spec).as_dict():
            chief_name = MASTER if MASTER in told else CHIEF
            addresses = {CHIEF if job == MASTER else job: (*at,) for job, at in told.items()}
            changes.update(addresses=addresses, chief_name=chief_name)
        if self.task_type != self.cluster.named_task_type:
            changes["task_type"] = CHIEF if self.task_type == MASTER else self.task_type
        if self.task_id != self.cluster.task_id:
            changes["task_id"] = self.task_id
        cluster = dataclasses.replace(self.cluster, **changes)
        if self.is_chief != cluster.is_chief:
            cluster = dataclasses.replace(cluster, writes=self.is_chief)
        return cluster

    @property
    def cluster_spec(self) -> tf.train.ClusterSpec:
        """The tasks that train together; empty when local, and for an evaluator."""
        return tf.train.ClusterSpec(self.cluster.named_cluster_spec)

    @property
    def master(self) -> str:
        """The target of training sessions."""
        return self.cluster.master

    @property
    def evaluation_master(self) -> str:
        """The target of evaluation sessions."""
        return self.cluster.evaluation_master

    def named_master(self, mode: str) -> str | None:
        """Returns the server of another process that a mode's sessions use; None if there is none.

        Tasks of a cluster evaluate and predict in their own processes.
        """
        if mode == ModeKeys.EVAL:
            is_other = self._is_overridden("evaluation_master")
            return self.evaluation_master if is_other else self.cluster.evaluation_master
        if mode == ModeKeys.TRAIN and self._is_overridden("master"):
            return self.master
        is_alone = not self.cluster.addresses
        return self.cluster.session_master if mode == ModeKeys.TRAIN or is_alone else None

    @property
    def task_type(self) -> str:
        """The role of this process: "chief" (or "master"), "worker", "ps" or "evaluator"."""
        return self.cluster.named_task_type

    @property
    def task_id(self) -> int:
        """The index of this process among those of its role."""
        return self.cluster.task_id

    @property
    def global_id_in_cluster(self) -> int | None:
        """The index of this process among all that train."""
        return self.cluster.global_id_in_cluster

    @property
    def is_chief(self) -> bool:
        """Whether this process is the chief, which writes files."""
        return self.cluster.is_chief

    @property
    def num_ps_replicas(self) -> int:
        """The number of tasks that hold variables."""
        return self.cluster.num_ps_replicas

    @property
    def num_worker_replicas(self) -> int:
        """The number of tasks that run replicas, including the chief."""
        return self.cluster.num_worker_replicas

    @property
    def service(self) -> Mapping[str, Any] | None:
        """The "service" of TF_CONFIG; None if it has none."""
        return self.cluster.service

    def __repr__(self) -> str:
        """Shows only the fields that differ from their defaults."""
        secs = DEFAULT_SAVE_CHECKPOINTS_SECS if self.save_checkpoints_steps is None else None
        return short_repr(
            self,
            save_checkpoints_steps=None,
            save_checkpoints_secs=secs,
            cluster=Cluster(),
            session_config=_default_session_config(self.cluster),
        )

    def _is_overridden(self, name: str) -> bool:
        """Returns whether a program's subclass overrides a property of this library."""
        owner = next(one for one in type(self).__mro__ if name in vars(one))
        return not owner.__module__.startswith("estimator.")

    def _take_model_dir(self) -> None:
        given = self.cluster.model_dir
        if given is None:
            return
        if self.model_dir not in (None, given):
            raise ValueError(
                f"`model_dir` ({self.model_dir!r}) must be that of `TF_CONFIG` ({given!r}), where "
                "that names one. Leave it out, here or there."
            )
        write_fields(self, model_dir=given)

    def _check(self) -> None:
        check_type("model_dir", self.model_dir, str, "a path")
        if self.model_dir == "":
            raise ValueError(
                "`model_dir` ('') must not be empty. Leave it out for a temporary one."
            )
        self._check_numbers()
        self._check_checkpoints()
        check_strategies(self)
        check_type("session_config", self.session_config, tf.compat.v1.ConfigProto, "a ConfigProto")
        self._check_device_fn()
        check_type("protocol", self.protocol, str, 'a name such as "grpc"')
        if self.protocol is not None:
            check_choice("protocol", self.protocol, PROTOCOLS)
        check_type(
            "communication_options",
            self.communication_options,
            type(tf.distribute.experimental.CommunicationOptions()),
            "a tf.distribute.experimental.CommunicationOptions",
        )
        check_choice("ps_placement", self.ps_placement, PS_PLACEMENTS)
        check_choice("nan_policy", self.nan_policy, NAN_POLICIES)
        write_fields(self, profile_steps=checked_window("profile_steps", self.profile_steps))
        self._check_compute_dtype()
        for name in _BOOLS:
            check_bool(name, getattr(self, name))

    def _check_numbers(self) -> None:
        for name in ("session_creation_timeout_secs", "peer_timeout_secs"):
            check_positive(name, getattr(self, name))
        if self.tf_random_seed is not None:
            check_int("tf_random_seed", self.tf_random_seed, minimum=None)
        for name in _STEPS:
            if getattr(self, name) is not None:
                write_fields(self, **{name: checked_count(name, getattr(self, name))})
        if self.keep_checkpoint_max is not None:
            check_int("keep_checkpoint_max", self.keep_checkpoint_max, minimum=0)
        check_limit("num_replicas", self.num_replicas, "leave it out for one per GPU")
        if self.experimental_max_worker_delay_secs is not None:
            delay = self.experimental_max_worker_delay_secs
            check_int("experimental_max_worker_delay_secs", delay, minimum=0)
        for name in ("keep_checkpoint_every_n_hours", "save_checkpoints_secs", "max_time_secs"):
            if getattr(self, name) is not None:
                check_positive(name, getattr(self, name))

    def _check_device_fn(self) -> None:
        if self.device_fn is None:
            return
        rule = "a function of exactly one argument, `op`, that returns its device"
        check_type("device_fn", self.device_fn, Callable, rule)
        if list(parameters_of("device_fn", self.device_fn)) != ["op"]:
            raise ValueError(f"`device_fn` ({self.device_fn!r}) must be {rule}.")

    def _check_compute_dtype(self) -> None:
        if self.compute_dtype == "float16":
            raise ValueError(
                "`compute_dtype` ('float16') must be 'float32' or 'bfloat16': float16 loses small "
                "gradients unless the loss is scaled, bfloat16 does not."
            )
        check_choice("compute_dtype", self.compute_dtype, COMPUTE_DTYPES)

    def _check_checkpoints(self) -> None:
        if self.save_checkpoints_steps is not None and self.save_checkpoints_secs is not None:
            raise ValueError(
                f"`save_checkpoints_steps` ({self.save_checkpoints_steps}) and "
                f"`save_checkpoints_secs` ({self.save_checkpoints_secs}) exclude each other. Pass "
                "one of them."
            )
        if self.async_checkpoints and self.cluster.num_ps_replicas:
            raise ValueError(
                "`async_checkpoints` (True) copies variables in memory, and here ps tasks hold "
                "them. Leave it out."
            )


def _default_session_config(cluster: Cluster) -> tf.compat.v1.ConfigProto | None:
    """Returns a config with the device filters of a cluster's task; None for a local process."""
    filters = cluster.default_device_filters
    if not filters:
        return None
    return tf.compat.v1.ConfigProto(allow_soft_placement=True, device_filters=filters)
