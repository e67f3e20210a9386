"""Reads the config of the Estimator that a hook is made for."""

from __future__ import annotations

from typing import Any

from estimator.config.checks import WrongTypeError
from estimator.config.run_config import RunConfig


def config_of(estimator: Any) -> RunConfig:
    """Returns the config of an Estimator, whose class this module cannot import.

    Raises:
      TypeError: `estimator` is not an Estimator.
    """
    config = getattr(estimator, "config", None)
    if not isinstance(config, RunConfig):
        raise WrongTypeError(f"`estimator` ({estimator!r}) must be an estimator.Estimator.")
    return config
