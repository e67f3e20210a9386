"""`tf.contrib.rnn`: an LSTM that runs over whole sequences in one op; it needs tf-keras."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

_V1 = tf.compat.v1


class LSTMBlockFusedCell(_V1.layers.Layer):  # type: ignore[name-defined]
    """An LSTM over sequences [time, batch, features]; its variables are those of an LSTMCell.

    The gates are those of `tf.raw_ops.BlockLSTM`, from S. Hochreiter and J. Schmidhuber, "Long
    Short-Term Memory" (1997), with a bias that is added to the forget gate.
    """

    def __init__(
        self,
        num_units: int,
        forget_bias: float = 1.0,
        cell_clip: float | None = None,
        use_peephole: bool = False,
        reuse: bool | None = None,
        dtype: Any = None,
        name: str = "lstm_fused_cell",
    ) -> None:
        """Creates no variable yet.

        Args:
          num_units: of the state and of the outputs.
          forget_bias: is not part of the variable `bias`.
          cell_clip: the state of the cell stays between this and its negative; the gradient is
            that without clipping.
          use_peephole: whether the gates see the state of the cell.
          reuse: whether the variables are there already.
          dtype: of the variables; by default that of the first input.
          name: of the variable scope.
        """
        super().__init__(_reuse=reuse, dtype=dtype, name=name)
        self.num_units = num_units
        self._forget_bias = forget_bias
        self._cell_clip = -1.0 if cell_clip is None else cell_clip
        self._use_peephole = use_peephole

    def build(self, input_shape: tf.TensorShape) -> None:
        """Creates the variables."""
        units = self.num_units
        self._kernel = self.add_weight("kernel", [int(input_shape[-1]) + units, 4 * units])
        zeros = tf.zeros_initializer()
        self._bias = self.add_weight("bias", [4 * units], initializer=zeros)
        if self._use_peephole:
            self._peepholes = [self.add_weight(f"w_{gate}_diag", [units]) for gate in "ifo"]
        self.built = True

    def call(
        self,
        inputs: tf.Tensor,
        initial_state: tuple[tf.Tensor, tf.Tensor] | None = None,
        dtype: Any = None,
        sequence_length: Any = None,
    ) -> tuple[tf.Tensor, tuple[tf.Tensor, tf.Tensor]]:
        """Returns the outputs [time, batch, num_units] and the last state, an LSTMStateTuple.

        Args:
          inputs: [time, batch, features].
          initial_state: the cell's state and the output before the first step, zeros by default.
          dtype: of `inputs`, if they are no tensor.
          sequence_length: [batch]; the outputs beyond are zeros, the state is that of its end.
        """
        inputs = tf.convert_to_tensor(inputs, dtype)
        length, batch_size = tf.unstack(tf.shape(inputs)[:2])
        zeros = tf.zeros([batch_size, self.num_units], inputs.dtype)
        first_state, first_output = initial_state or (zeros, zeros)
        longest = length if sequence_length is None else tf.reduce_max(sequence_length)
        no_peephole = tf.zeros([self.num_units], inputs.dtype)
        input_gate, forget_gate, output_gate = (
            self._peepholes if self._use_peephole else [no_peephole] * 3
        )
        steps = tf.raw_ops.BlockLSTM(
            seq_len_max=tf.cast(longest, tf.int64),
            x=inputs,
            cs_prev=first_state,
            h_prev=first_output,
            w=self._kernel,
            wci=input_gate,
            wcf=forget_gate,
            wco=output_gate,
            b=self._bias,
            forget_bias=self._forget_bias,
            cell_clip=self._cell_clip,
            use_peephole=self._use_peephole,
        )
        if sequence_length is None:
            return steps.h, _V1.nn.rnn_cell.LSTMStateTuple(steps.cs[-1], steps.h[-1])
        ends = tf.stack([tf.cast(sequence_length, tf.int32), tf.range(batch_size)], axis=1)
        states = tf.concat([[first_state], steps.cs], 0)
        outputs = tf.concat([[first_output], steps.h], 0)
        last = _V1.nn.rnn_cell.LSTMStateTuple(
            tf.gather_nd(states, ends), tf.gather_nd(outputs, ends)
        )
        is_real = tf.transpose(tf.sequence_mask(sequence_length, length, inputs.dtype))
        return steps.h * is_real[..., tf.newaxis], last


class TimeReversedFusedRNN:
    """Runs another layer over each sequence from its end, and returns outputs in the old order."""

    def __init__(self, cell: Any) -> None:
        """Takes a layer such as LSTMBlockFusedCell."""
        self._cell = cell

    def __call__(
        self,
        inputs: tf.Tensor,
        initial_state: Any = None,
        dtype: Any = None,
        sequence_length: Any = None,
        scope: Any = None,
    ) -> tuple[tf.Tensor, Any]:
        """Returns the outputs and the state after the first step of each sequence."""

        def reverse(sequences: tf.Tensor) -> tf.Tensor:
            if sequence_length is None:
                return tf.reverse(sequences, [0])
            return tf.reverse_sequence(sequences, sequence_length, seq_axis=0, batch_axis=1)

        outputs, state = self._cell(
            reverse(inputs),
            initial_state=initial_state,
            dtype=dtype,
            sequence_length=sequence_length,
            scope=scope,
        )
        return reverse(outputs), state
