"""What the tests of `train_and_evaluate` share."""

import tensorflow as tf

import estimator as est
from tests.toy import events, numbers


def eval_spec(**arguments):
    return est.EvalSpec(numbers(4, start=1), **{"steps": None, "throttle_secs": 0, **arguments})


def evaluated_steps(model, name=None):
    """The steps of the evaluations, in order, from the event file."""
    return [step for step, tag, _ in events(model.eval_dir(name)) if tag == "loss"]


class Recorder(est.Exporter):
    """An exporter that writes nothing and remembers (step, whether it is the last) of each call."""

    def __init__(self, name="recorder"):
        self._name = name
        self.calls = []
        self.paths = []

    @property
    def name(self):
        return self._name

    def export(self, estimator, export_path, checkpoint_path, eval_result, is_the_final_export):
        assert tf.train.load_variable(checkpoint_path, "global_step") == eval_result["global_step"]
        self.calls.append((int(eval_result["global_step"]), is_the_final_export))
        self.paths.append(export_path)
        return f"{self._name} of step {eval_result['global_step']}"
