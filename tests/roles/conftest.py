"""Makes the Estimators that the tests of this folder train."""

import pytest

import estimator as est
from tests.toy import Model


@pytest.fixture
def make(tmp_path):
    """Makes Estimators in one directory, and closes them."""
    made = []

    def make(model_fn=None, **config):
        config = {"save_summary_steps": None, "save_checkpoints_steps": 50, **config}
        run_config = est.RunConfig(**config)
        made.append(est.Estimator(model_fn or Model(), str(tmp_path / "model"), run_config))
        return made[-1]

    yield make
    for model in made:
        model.close()
