"""The names of `tf.compat.v1.estimator`: those of `estimator`, but for the ready-made models.

The Estimator is the same as elsewhere, and has `export_savedmodel`, too.
"""

from typing import TYPE_CHECKING

import estimator
from estimator.canned import v1_models

_NOT_OF_V1 = (
    "Cluster CrossShardOptimizer TrainResult compat install keras make_predictor parse_tf_config "
    "uninstall"
)

if TYPE_CHECKING:
    from estimator import *  # noqa: F403
    from estimator.canned.v1_models import *  # noqa: F403
else:
    __all__ = sorted(set(estimator.__all__).difference(_NOT_OF_V1.split()))
    _models = vars(v1_models)
    globals().update(
        {name: _models[name] if name in _models else getattr(estimator, name) for name in __all__}
    )
