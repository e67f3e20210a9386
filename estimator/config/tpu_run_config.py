"""`estimator.tpu.RunConfig`: a `RunConfig` with a TPU's settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from estimator.config.checks import check_instance
from estimator.config.cluster import EVALUATOR, Cluster
from estimator.config.frozen import write_fields
from estimator.config.run_config import RunConfig
from estimator.config.tpu_config import TPUConfig
from estimator.spec import ModeKeys


@dataclass(unsafe_hash=True, init=False, repr=False)
class TPURunConfig(RunConfig):
    """A RunConfig with a `tpu_config`, which determines the length of its loop.

    Attributes:
      tpu_config: a `TPUConfig`.
      tpu_cluster_resolver: the `cluster` argument if it is a `TPUClusterResolver` of
        `tf.distribute.cluster_resolver`; it determines the masters.
    """

    _shown_as: ClassVar = "tpu.RunConfig"

    tpu_config: TPUConfig = TPUConfig()
    tpu_cluster_resolver: Any = field(default=None, hash=False)
    _master: str | None = None
    _evaluation_master: str | None = None

    def __init__(
        self,
        tpu_config: TPUConfig | None = None,
        evaluation_master: str | None = None,
        master: str | None = None,
        cluster: Any = None,
        **kwargs: Any,
    ) -> None:
        """Takes the TPU arguments, and those of `RunConfig` by name.

        `cluster` may also be the `Cluster` that `RunConfig` takes.

        Raises:
          TypeError, ValueError: as for `RunConfig`, or a TPU's `cluster` is combined with a master.
        """
        if isinstance(cluster, Cluster):
            kwargs["cluster"], cluster = cluster, None
        if cluster is not None and (master is not None or evaluation_master is not None):
            raise ValueError(
                f"`cluster` ({cluster!r}) and `master` ({master!r}) or `evaluation_master` "
                f"({evaluation_master!r}) exclude each other: the cluster names the masters."
            )
        if "iterations_per_loop" in kwargs:
            raise ValueError(
                f"`iterations_per_loop` ({kwargs['iterations_per_loop']!r}) belongs in the "
                "`tpu_config`: TPUConfig(iterations_per_loop=...)."
            )
        write_fields(
            self,
            tpu_config=TPUConfig() if tpu_config is None else tpu_config,
            tpu_cluster_resolver=cluster,
            _master=master,
            _evaluation_master=evaluation_master,
        )
        super().__init__(**kwargs)

    def _normalize(self) -> None:
        """Takes the loop's length from the `tpu_config`, then checks every field."""
        check_instance("tpu_config", self.tpu_config, TPUConfig, "a TPUConfig")
        write_fields(self, iterations_per_loop=self.tpu_config.iterations_per_loop)
        super()._normalize()

    @property
    def master(self) -> str:
        """The target of training sessions."""
        if self._master is None and self.tpu_cluster_resolver is not None:
            return self.tpu_cluster_resolver.master()
        return super().master if self._master is None else self._master

    @property
    def evaluation_master(self) -> str:
        """The target of evaluation sessions: the `master`, unless another one is given."""
        if self._evaluation_master is not None:
            return self._evaluation_master
        return super().evaluation_master or ("" if self.task_type == EVALUATOR else self.master)

    def named_master(self, mode: str) -> str | None:
        """Extends `RunConfig.named_master` by `master` and `evaluation_master`."""
        is_alone = not self.cluster.addresses
        if mode == ModeKeys.EVAL and self._evaluation_master is not None:
            return self._evaluation_master
        if self._master is not None and (mode == ModeKeys.TRAIN or is_alone):
            return self._master
        return super().named_master(mode)

    def replace(self, **changes: Any) -> Any:
        """Extends `RunConfig.replace`: `iterations_per_loop` changes the `tpu_config`."""
        if "iterations_per_loop" in changes:
            tpu_config = changes.get("tpu_config", self.tpu_config)
            length = changes.pop("iterations_per_loop")
            changes["tpu_config"] = tpu_config.replace(iterations_per_loop=length)
        return super().replace(**changes)
