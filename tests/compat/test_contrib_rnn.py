"""Recurrent layers of tf.contrib, which need tf-keras as tf.keras: in processes of their own."""

import json
import textwrap

from tests.forked import OldProgram


def results(path, program):
    """Runs a program and returns what it prints last."""
    path.write_text(textwrap.dedent(program))
    with OldProgram(path) as running:
        assert running.status() == 0, running.err
        return json.loads(running.out.splitlines()[-1])


RNN = """
    import json
    import numpy as np
    import tensorflow as tf
    from tensorflow.contrib import rnn

    def build(inputs, **options):
        cells = [[rnn.GRUCell(size) for size in (3, 4)] for _ in range(2)]
        return rnn.stack_bidirectional_dynamic_rnn(
            *cells, inputs, dtype=tf.float32, sequence_length=[5, 2], **options)

    x = np.random.RandomState(0).normal(size=[2, 5, 6]).astype("float32")
    tf.set_random_seed(1)
    outputs, forward, backward = build(x)
    names = [v.op.name for v in tf.global_variables()]
    with tf.variable_scope(tf.get_variable_scope(), reuse=True):
        by_time, _, _ = build(tf.transpose(x, [1, 0, 2]), time_major=True)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        found, by_time, forward = session.run([outputs, by_time, forward])
    print(json.dumps(dict(
        names=names,
        shape=found.shape,
        padding=np.abs(found[1, 2:]).max().item(),
        last=np.abs(found[1, 1, :4] - forward[1][1]).max().item(),
        by_time=np.abs(by_time.transpose([1, 0, 2]) - found).max().item(),
    )))
"""


def test_recurrent_layers_are_stacked_in_both_directions(tmp_path):
    found = results(tmp_path / "rnn.py", RNN)
    assert [found[name] for name in ("padding", "last", "by_time")] == [0, 0, 0]
    assert found["shape"] == [2, 5, 8]
    prefix = "stack_bidirectional_rnn/cell_1/bidirectional_rnn"
    assert {f"{prefix}/fw/gru_cell/gates/kernel", f"{prefix}/bw/gru_cell/candidate/bias"} <= set(
        found["names"]
    )


FUSED = """
    import json
    import random
    import numpy as np
    import tensorflow as tf
    from tensorflow.contrib import rnn

    def differences(seed):
        tf.reset_default_graph()
        draw = random.Random(seed)
        length, batch, depth, units = (draw.randint(1, 5) for _ in range(4))
        peephole = draw.random() < 0.5
        options = dict(
            forget_bias=draw.choice([0.0, 1.0]), cell_clip=draw.choice([None, 0.3]))
        is_clipped = options["cell_clip"] is not None
        lengths = [draw.randint(0, length) for _ in range(batch)]
        lengths = draw.choice([None, lengths])
        numbers = np.random.RandomState(seed)
        x = tf.constant(numbers.normal(size=[length, batch, depth]), tf.float32)
        state = None
        if draw.random() < 0.5:
            first = tf.constant(numbers.normal(size=[2, batch, units]), tf.float32)
            state = rnn.LSTMStateTuple(first[0], first[1])
        fused = rnn.LSTMBlockFusedCell(units, use_peephole=peephole, **options)
        cell = rnn.LSTMCell(units, use_peepholes=peephole, **options)
        inputs = x
        backwards = draw.random() < 0.5
        if backwards:
            layer = rnn.TimeReversedFusedRNN(fused)
            inputs = tf.reverse(x, [0]) if lengths is None else tf.reverse_sequence(
                x, lengths, seq_axis=0, batch_axis=1)
        else:
            layer = fused
        found = layer(x, state, dtype=tf.float32, sequence_length=lengths)
        outputs, last = tf.nn.dynamic_rnn(
            cell, inputs, lengths, state, tf.float32, time_major=True)
        if backwards:
            outputs = tf.reverse(outputs, [0]) if lengths is None else tf.reverse_sequence(
                outputs, lengths, seq_axis=0, batch_axis=1)
        weights, expected = (
            {v.op.name.rpartition("/")[2]: v for v in layer.weights} for layer in (fused, cell))
        assert weights.keys() == expected.keys()
        names = {v.op.name for v in fused.weights}
        assert names == {f"lstm_fused_cell/{name}" for name in weights}, names
        expected = [expected[name] for name in weights]
        weights = [*weights.values()]
        values = [numbers.normal(size=v.shape) for v in weights]
        losses = [
            sum(tf.reduce_sum(tf.sin(3 * t)) for t in tf.nest.flatten(all))
            for all in (found, (outputs, last))]
        both = [
            # TensorFlow's gradient of the fused op passes through what was clipped.
            [all, [] if is_clipped else tf.gradients(
                loss, [x, *variables], unconnected_gradients="zero")]
            for all, loss, variables in zip(
                (found, (outputs, last)), losses, (weights, expected))]
        with tf.Session() as session:
            for v, value in zip([*weights, *expected], 2 * values):
                v.load(value, session)
            pairs = [tf.nest.flatten(one) for one in session.run(both)]
        return [np.abs(a - b).max().item() for a, b in zip(*pairs)]

    print(json.dumps([differences(seed) for seed in range(30)]))
"""


def test_a_fused_lstm_is_an_lstm_cell_over_each_sequence(tmp_path):
    found = results(tmp_path / "fused.py", FUSED)
    assert len(found) == 30
    assert max(max(differences) for differences in found) < 1e-4
