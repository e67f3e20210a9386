"""What tests of sessions on existing servers start.

python existing_run.py server ADDRESSES JOB INDEX, where ADDRESSES is the JSON of a cluster
python existing_run.py endless MASTER MODEL_DIR
"""

import json
import sys

import tensorflow as tf

import estimator as est
from tests.integration.worker_run import average_model_fn, numbers


def make_model(model_dir, master=None, loop=1, **changes):
    config = est.tpu.RunConfig(
        est.tpu.TPUConfig(iterations_per_loop=loop),
        master=master,
        tf_random_seed=1,
        **{"save_checkpoints_steps": 5, "session_creation_timeout_secs": 60, **changes},
    )
    return est.Estimator(average_model_fn, model_dir, config)


def server(addresses, job, index):
    """A server that knows nothing of this library, as long as its process lives."""
    started = tf.distribute.Server(json.loads(addresses), job_name=job, task_index=int(index))
    print("up", flush=True)
    started.join()


def endless(master, model_dir):
    """Training without an end, in one long call."""

    class Say(tf.compat.v1.train.SessionRunHook):
        def after_create_session(self, session, coord):
            print("begun", flush=True)

    changes = {"save_checkpoints_steps": None, "save_summary_steps": None}
    model = make_model(model_dir, master, 10**6, log_step_count_steps=None, **changes)
    model.train(numbers(None), hooks=[Say()])


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
