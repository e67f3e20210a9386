"""Old programs: `estimator.compat.v1` for `tf.compat.v1.estimator`, and what runs them unchanged.

`python -m estimator.compat SCRIPT.py` runs a program of TensorFlow 1; `estimator.install` is for
programs that only lack `tf.estimator`. TensorFlow is imported on the first use of a name, since the
runner has to set up its Keras before.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from estimator.compat import v1

__all__ = ["v1"]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Imports `v1` when it is first used."""
        if name == "v1":
            return importlib.import_module("estimator.compat.v1")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
