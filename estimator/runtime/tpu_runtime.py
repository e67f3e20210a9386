"""The runtime of a TPU: one compiled program for all its cores, on its own hosts."""

from __future__ import annotations

import collections
import contextlib
import threading
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import tensorflow as tf

from estimator import _tf
from estimator.cluster.server import Connection
from estimator.console import note
from estimator.runtime.local import Runtime
from estimator.runtime.tpu_strategy import make_host_config

_lock = threading.Lock()
# By TPU name: its failures in this process, and its failures before the last initialization.
_num_failures: collections.Counter[str] = collections.Counter()
_num_failures_before: collections.Counter[str] = collections.Counter()


class TPURuntime(Runtime):
    """Any mode on a TPU."""

    is_compiled: ClassVar[bool] = True
    params: ClassVar[Mapping[str, Any]] = {"use_tpu": True}

    @property
    def host_task(self) -> str:
        """The task of the (first) TPU's host as a device string.

        A TPU with several hosts has several CPUs of the same name, so "/cpu:0" alone is ambiguous.
        """
        core = tf.DeviceSpec.from_string(self.strategy.extended.worker_devices[0])
        return core.replace(device_type=None, device_index=None).to_string()

    @property
    def runs_here(self) -> bool:
        """Whether the TPU is in this machine: a session on another runs there."""
        return not self._resolver.master()

    @property
    def _resolver(self) -> Any:
        return _tf.tpu_resolver(self.strategy)

    def check_trainable(self) -> None:
        """Raises ValueError if `nan_policy` is "skip"."""
        if self.config.nan_policy == "skip":
            raise ValueError(
                f"`nan_policy` ({self.config.nan_policy!r}) is not supported on a TPU: a step is "
                'compiled as a whole and cannot be undone. Pass "raise", "stop" or "ignore".'
            )

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """Inside, ops without a device are on the TPU's host."""
        with tf.device(self.host_task), super().scope():
            yield

    def session_config(self) -> tf.compat.v1.ConfigProto:
        """Returns the config of sessions on the TPU's machines, each with its own variables."""
        return self.strategy.update_config_proto(super().session_config())

    def connect(self) -> Connection:
        """Connects to the TPU; a remote TPU's hosts are needed tasks."""
        target = self._resolver.master()
        if not target:
            return Connection(target, self.session_config())
        spec = self._resolver.cluster_spec()
        needed = {
            f"the TPU's {job} {index}": spec.task_address(job, index)
            for job in (spec.jobs if spec else ())
            for index in spec.task_indices(job)
        } or {"the TPU": target.partition("://")[2]}
        return Connection(target, self.session_config(), needed, is_elsewhere=True)

    def start(self) -> None:
        """Initializes the TPU, once per process and again after a failure.

        Open sessions lose their variables when that happens: see `num_failures`.

        Raises:
          ValueError: the TPU cannot be initialized.
        """
        resolver = self._resolver
        name = _tf.tpu_name(resolver)
        with _lock:
            has_failed = _num_failures[name] != _num_failures_before[name]
            if has_failed or not _tf.is_initialized_tpu(resolver):
                note("Initializing the TPU (%s).", resolver.master() or "of this machine")
                try:
                    _initialize(resolver)
                except tf.errors.OpError as error:
                    raise ValueError(
                        f"The TPU cannot be initialized: {_first_line(error)}. Is "
                        "this TensorFlow built for TPUs (the package tensorflow-tpu), and does no "
                        "other process use it?"
                    ) from error
                _num_failures_before[name] = _num_failures[name]

    def num_failures(self) -> int:
        """Returns how often the TPU has failed; a change invalidates open sessions."""
        return _num_failures[_tf.tpu_name(self._resolver)]

    @contextlib.contextmanager
    def restarting_after_failure(self) -> Iterator[None]:
        """Makes a failed operation inside the block reinitialize the TPU before its next session.

        A program that fails to compile leaves a TPU usable if `start` initialized it. A TPU that
        was preempted, or initialized by another program, may be in any state.
        """
        try:
            yield
        except Exception as error:
            if _is_of_an_operation(error):
                _num_failures[_tf.tpu_name(self._resolver)] += 1
            raise


def _is_of_an_operation(error: BaseException | None) -> bool:
    """Returns whether an error, or one of its causes, comes from a failed operation."""
    while error is not None:
        if isinstance(error, tf.errors.OpError):
            return not isinstance(error, tf.errors.OutOfRangeError)
        error = error.__cause__ or error.__context__
    return False


def _first_line(error: tf.errors.OpError) -> str:
    """Returns the error's message without the traceback of the operation."""
    lines = error.message.strip().splitlines()
    node = next((place for place, line in enumerate(lines) if line.startswith("Node: ")), -1)
    return "".join(lines[node + 1 : node + 2]).strip()


def _initialize(resolver: Any) -> None:
    """Runs the initialization in its own graph and session.

    With `tf.tpu.experimental.initialize_tpu_system`, a program that fails to compile would close
    the chips, and every later program of the process would fail.
    """
    config = make_host_config(resolver, allow_soft_placement=True)
    with tf.Graph().as_default() as graph:
        topology = tf.compat.v1.tpu.initialize_system(
            compilation_failure_closes_chips=False, tpu_cancellation_closes_chips=False
        )
        with tf.compat.v1.Session(resolver.master(), graph, config) as session:
            _tf.note_initialized_tpu(resolver, session.run(topology))
