"""A run that says where it is and is then sent signals.

    python signalled_run.py MODEL_DIR ITERATIONS_PER_LOOP PHASE

PHASE is "train", "evaluate", "export", "own handler" or "thread". A line on stdout says that the
phase has begun; then it goes on for ever.
"""

import os
import signal
import sys
import threading
import time

import tensorflow as tf

import estimator as est
from tests.toy import Model, numbers


class Say(tf.compat.v1.train.SessionRunHook):
    """Says on stdout that the first session call has ended."""

    def after_run(self, run_context, run_values):
        print("begun", flush=True)

    def end(self, session):
        print("ended", flush=True)


def serving_input_receiver_fn():
    print("begun", flush=True)
    while True:  # A signal that comes just before `signal.pause` would not end it.
        time.sleep(0.05)


def on_signal(number, frame):
    print("the program's own", flush=True)
    os._exit(7)  # An exception could come up anywhere, also inside TensorFlow.


def main(model_dir, iterations_per_loop, phase):
    # A process that a shell started with `&` ignores SIGINT, and so do its children.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if phase == "own handler":
        signal.signal(signal.SIGTERM, on_signal)
    config = est.RunConfig(
        iterations_per_loop=iterations_per_loop,
        save_checkpoints_steps=10**6,
        save_summary_steps=None,
    )
    trained = est.Estimator(Model(), model_dir, config)
    if phase in ("train", "own handler"):
        trained.train(numbers(), hooks=[Say()])
    elif phase == "thread":
        thread = threading.Thread(target=trained.train, args=(numbers(), [Say()]), daemon=True)
        thread.start()
        thread.join()
    elif phase == "evaluate":
        trained.train(numbers(), steps=3)
        trained.evaluate(numbers(), hooks=[Say()])
    else:
        trained.train(numbers(), steps=3)
        trained.export_saved_model(model_dir + "/export", serving_input_receiver_fn)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
