"""The checks of the canary by the entry of `_tf` that they try, and what several of them need."""

import os

import tensorflow as tf

CHECKS = {}
V1 = tf.compat.v1


def checks(entry):
    """Decorates the check of an entry of `_tf`: it uses the entry as the library does."""

    def register(check):
        assert entry not in CHECKS, entry
        CHECKS[entry] = check
        return check

    return register


def in_loop(function):
    """What a function of a loop's counter gives in the body of a `tf.while_loop`; and its graph."""
    from estimator import _tf

    results = []

    def body(count):
        results.append(function(count))
        return count + 1

    with tf.Graph().as_default() as graph:
        _tf.while_loop(lambda count: count < 1, body, [tf.constant(0)])
    return results[0], graph


def called_by_keras(expression, **names):
    """The value of an expression in a line of a file that seems to be Keras's."""
    import keras

    path = os.path.join(os.path.dirname(keras.__file__), "canary.py")
    return eval(compile(expression, path, "eval"), names)
