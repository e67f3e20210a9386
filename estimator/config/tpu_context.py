"""`params["context"]`, which tells a program about its replicas and their input."""

from __future__ import annotations

import dataclasses

import tensorflow as tf

from estimator.config.checks import check_int

_HOST = "/device:CPU:0"


@dataclasses.dataclass(frozen=True, eq=False)
class TPUContext:
    """Describes where the functions of a TPUEstimator run; passed in `params["context"]`.

    It has the members of the class of the same name in `tf.compat.v1.estimator.tpu`, and describes
    the replicas of any strategy. Programs only read it.

    Attributes:
      num_replicas: the number of replicas over all hosts.
      input_context: the context of an `input_fn` call; None for `model_fn`.
      num_hosts: the number of workers that train together; 1 in evaluation and prediction.
      host: the index of this task among them.
    """

    num_replicas: int
    input_context: tf.distribute.InputContext | None = None
    num_hosts: int = 1
    host: int = 0

    @property
    def num_of_replicas_per_host(self) -> int:
        """The number of replicas of one host."""
        return self.num_replicas // self.num_hosts

    @property
    def current_host(self) -> int:
        """The index of this worker, for `input_fn`.

        Raises:
          RuntimeError: called in `model_fn`.
        """
        self._call_of_input_fn("current_host")
        return self.host

    @property
    def device_assignment(self) -> None:
        """Always None, as no model is split over the cores of a TPU; for `model_fn` only.

        Raises:
          RuntimeError: called in `input_fn`.
        """
        if self.input_context is not None:
            raise RuntimeError(
                '`params["context"].device_assignment` is for `model_fn`: `input_fn` runs on hosts.'
            )

    def tpu_host_placement_function(self, host_id: int) -> str:
        """Returns the device of a host."""
        _check_index("host_id", host_id, self.num_hosts)
        return _HOST

    def current_input_fn_deployment(self) -> tuple[str, int, int, int]:
        """Describes the current call of `input_fn`.

        Returns:
          The host's device, the index of the call, the number of calls, and the number of replicas
          that the call is for.

        Raises:
          RuntimeError: called in `model_fn`.
        """
        call = self._call_of_input_fn("current_input_fn_deployment()")
        num_calls = call.num_input_pipelines
        return _HOST, call.input_pipeline_id, num_calls, self.num_replicas // num_calls

    def device_for_replica(self, replica_id: int) -> tuple[str, int]:
        """Returns the device of the replica's host, and the replica's index there."""
        _check_index("replica_id", replica_id, self.num_replicas)
        return _HOST, replica_id % self.num_of_replicas_per_host

    def __repr__(self) -> str:
        """Shows the number of replicas, and of hosts if there are several."""
        hosts = f", num_hosts={self.num_hosts}" if self.num_hosts > 1 else ""
        return f"TPUContext(num_replicas={self.num_replicas}{hosts})"

    def _call_of_input_fn(self, member: str) -> tf.distribute.InputContext:
        if self.input_context is None:
            raise RuntimeError(
                f'`params["context"].{member}` is for `input_fn`; `model_fn` runs on all replicas.'
            )
        return self.input_context


def _check_index(argument: str, index: int, count: int) -> None:
    check_int(argument, index, minimum=0)
    if index >= count:
        raise ValueError(f"`{argument}` ({index}) must be less than {count}.")
