"""What `params["context"]` tells old programs of the replicas and of their input."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from estimator.config.checks import check_int

_HOST = "/device:CPU:0"


class TPUContext:
    """Where the functions of a TPUEstimator run; they find it in `params["context"]`.

    It has the members of the class of that name in `tf.compat.v1.estimator.tpu`, and tells of the
    replicas of whatever strategy there is.
    """

    def __init__(
        self,
        num_replicas: int,
        input_context: tf.distribute.InputContext | None = None,
        num_hosts: int = 1,
        host: int = 0,
    ) -> None:
        """Programs only read it.

        Args:
          num_replicas: over all hosts.
          input_context: of the call of `input_fn` that it is made for; None for `model_fn`.
          num_hosts: tasks of a cluster that call `input_fn` for one model.
          host: the index of this one.
        """
        self._num_replicas = num_replicas
        self._num_hosts = num_hosts
        self._host = host
        self._input_context = input_context

    @property
    def num_replicas(self) -> int:
        """Replicas over all hosts."""
        return self._num_replicas

    @property
    def num_hosts(self) -> int:
        """Workers of a cluster that train together; 1 in evaluation and prediction."""
        return self._num_hosts

    @property
    def num_of_replicas_per_host(self) -> int:
        """Replicas of one host."""
        return self._num_replicas // self.num_hosts

    @property
    def current_host(self) -> int:
        """The index of this worker, for `input_fn`.

        Raises:
          RuntimeError: in `model_fn`.
        """
        self._call_of_input_fn("current_host")
        return self._host

    @property
    def device_assignment(self) -> None:
        """None, for `model_fn`: no model is cut over the cores of a TPU.

        Raises:
          RuntimeError: in `input_fn`.
        """
        if self._input_context is not None:
            raise RuntimeError(
                '`params["context"].device_assignment` is for `model_fn`: `input_fn` runs on hosts.'
            )

    @property
    def tpu_host_placement_function(self) -> Callable[[int], str]:
        """A function from the index of a host to its device."""

        def place(host_id: int) -> str:
            _check_index("host_id", host_id, self.num_hosts)
            return _HOST

        return place

    def current_input_fn_deployment(self) -> tuple[str, int, int, int]:
        """What this call of `input_fn` is for.

        Returns:
          The host's device, which call it is, of how many, and for how many replicas.

        Raises:
          RuntimeError: in `model_fn`.
        """
        call = self._call_of_input_fn("current_input_fn_deployment()")
        num_calls = call.num_input_pipelines
        return _HOST, call.input_pipeline_id, num_calls, self._num_replicas // num_calls

    def device_for_replica(self, replica_id: int) -> tuple[str, int]:
        """The device of the replica's host, and the replica's index there."""
        _check_index("replica_id", replica_id, self._num_replicas)
        return _HOST, replica_id % self.num_of_replicas_per_host

    def __repr__(self) -> str:
        """How many replicas there are, and hosts if there are several."""
        hosts = f", num_hosts={self._num_hosts}" if self._num_hosts > 1 else ""
        return f"TPUContext(num_replicas={self._num_replicas}{hosts})"

    def _call_of_input_fn(self, member: str) -> tf.distribute.InputContext:
        if self._input_context is None:
            raise RuntimeError(
                f'`params["context"].{member}` is for `input_fn`; `model_fn` runs on all replicas.'
            )
        return self._input_context


def _check_index(argument: str, index: int, count: int) -> None:
    check_int(argument, index, minimum=0)
    if index >= count:
        raise ValueError(f"`{argument}` ({index}) must be less than {count}.")
