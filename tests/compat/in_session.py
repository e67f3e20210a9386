"""Runs tensors of the default graph."""

import tensorflow as tf

V1 = tf.compat.v1


def run(*tensors):
    """Runs tensors of the default graph in a new session, with initial variables and tables."""
    with V1.Session() as session:
        session.run([V1.global_variables_initializer(), V1.local_variables_initializer()])
        session.run(V1.tables_initializer())
        return session.run(list(tensors))
