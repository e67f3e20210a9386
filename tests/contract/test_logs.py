"""What the logger of TensorFlow is told, which programs read and write to files."""

import logging
import os

import pytest

from tests.contract.names import est, forever, mean_model_fn, numbers


class Lines(logging.Handler):
    """Keeps what is logged, as (level, message)."""

    def __init__(self):
        super().__init__()
        self.found = []

    def emit(self, record):
        self.found.append((record.levelno, record.getMessage()))

    def take(self):
        taken, self.found = self.found, []
        return taken


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    """By verb, what a handler of the logger gets."""
    handler, logger = Lines(), logging.getLogger("tensorflow")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    found = {}
    est.Estimator(mean_model_fn)
    found["temporary"] = handler.take()
    path = os.fspath(tmp_path_factory.mktemp("model"))
    config = est.RunConfig(log_step_count_steps=5, save_checkpoints_steps=5)
    made = est.Estimator(mean_model_fn, path, config)
    found["construct"] = handler.take()
    made.train(forever(), max_steps=10)
    found["train"] = handler.take()
    made.train(forever(), max_steps=10)
    found["train again"] = handler.take()
    made.evaluate(numbers(3))
    found["evaluate"] = handler.take()
    list(made.predict(numbers(1)))
    found["predict"] = handler.take()
    list(est.Estimator(mean_model_fn, os.path.join(path, "none")).predict(numbers(1)))
    found["predict without a checkpoint"] = handler.take()
    logger.removeHandler(handler)
    logger.setLevel(level)
    return found


def said(lines, verb, *words):
    """Whether one line of a verb has all these words."""
    return any(all(word in text for word in words) for _, text in lines[verb])


def test_a_temporary_model_dir_is_a_warning(lines):
    assert any(level == logging.WARNING and "/tmp" in text for level, text in lines["temporary"])


@pytest.mark.parametrize(
    ("verb", "words"),
    [
        ("train", ("loss",)),
        ("train", ("model.ckpt",)),
        ("train again", ("max_steps",)),
        ("evaluate", ("mean_x",)),
        ("evaluate", ("model.ckpt-10",)),
        ("predict", ("model.ckpt-10",)),
        ("predict without a checkpoint", ("initial",)),
    ],
    ids=str,
)
def test_line(lines, verb, words):
    assert said(lines, verb, *words)


@pytest.mark.parametrize("verb", ["construct", "train", "evaluate", "predict"])
def test_nothing_is_a_warning_where_nothing_is_wrong(lines, verb):
    warnings = [text for level, text in lines[verb] if level >= logging.WARNING]
    # TensorFlow's own, of the functions that tf.estimator called, and of steps read too early.
    others = ("deprecated", "Instructions for updating", "has not been increased")
    assert [text for text in warnings if not any(other in text for other in others)] == []


def test_training_says_how_it_goes(lines):
    assert len([text for _, text in lines["train"] if "loss" in text]) >= 2
