"""What the tasks of a cluster run that loses one of them.

python lost_run.py SCENARIO MODEL_DIR [ARGUMENT]
"""

import os
import sys
import time

import tensorflow as tf

import estimator as est
from tests.integration.worker_run import average_model_fn, numbers

v1 = tf.compat.v1
# Steps without an end take no more of a core than they must, as whoever is left waits for seconds.
STEP_SECS = 0.02


class Say(v1.train.SessionRunHook):
    """Says how far this task has come, at a slow pace."""

    def begin(self):
        print("waiting", flush=True)

    def after_run(self, run_context, run_values):
        print("trains", flush=True)
        time.sleep(STEP_SECS)


def make_model(model_dir, model_fn=average_model_fn, **changes):
    return est.Estimator(
        model_fn,
        config=est.RunConfig(
            model_dir,
            **{"session_creation_timeout_secs": 60, "save_checkpoints_steps": 10, **changes},
        ),
    )


def timeouts(creation_secs, peer_secs):
    return {
        "session_creation_timeout_secs": float(creation_secs),
        "peer_timeout_secs": float(peer_secs),
    }


def run(model, max_steps=None, input_fn=None):
    spec = est.EvalSpec(numbers(4), steps=None, start_delay_secs=0, throttle_secs=0)
    train_spec = est.TrainSpec(input_fn or numbers(None), max_steps, hooks=[Say()])
    result = est.train_and_evaluate(model, train_spec, spec)
    print(result.train_result.global_step, result.train_result.reason, flush=True)


def endless(model_dir, timeout_secs=60, peer_timeout_secs=60):
    """Training without an end, of small steps or loops."""
    run(make_model(model_dir, **timeouts(timeout_secs, peer_timeout_secs)))


def slow_start(model_dir):
    """The chief begins to give variables their values, and waits for a file."""

    def model_fn(features, labels, mode, config):
        spec = average_model_fn(features, labels, mode)

        def init_fn(scaffold, session):
            print("initializing", flush=True)
            while not os.path.exists(os.path.join(model_dir, "go")):
                time.sleep(0.05)

        return spec._replace(scaffold=v1.train.Scaffold(init_fn=init_fn))

    run(make_model(model_dir, model_fn))


def together(model_dir, timeout_secs=600, peer_timeout_secs=60):
    """Workers that wait for each other, beside an evaluator."""
    changes = timeouts(timeout_secs, peer_timeout_secs)
    run(make_model(model_dir, strategy="multi_worker_mirrored", **changes))


def other_model(model_dir):
    """The worker's model is not the chief's."""
    is_chief = est.RunConfig().is_chief

    def model_fn(features, labels, mode):
        v1.get_variable("more", [3, 1 if is_chief else 2])
        if is_chief:
            v1.get_variable("of_the_chief", [])
        else:
            v1.get_variable("only_there", [])
        return average_model_fn(features, labels, mode)

    run(make_model(model_dir, model_fn), 20)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
