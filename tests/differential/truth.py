"""The truth about a program: an eager loop in Python that shares no code with `estimator/`.

A step is this: each replica takes the next batch, `accumulate_steps` times; a replica's gradients
are those of its own batch; they are averaged (or summed) over the replicas and averaged over the
batches; the optimizer applies the result once. Where a replica has no batch training stops, after a
step of the batches that all replicas had.
"""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import tensorflow as tf

from tests.differential import data, layers
from tests.differential.optimizers import make_eagerly
from tests.differential.program import STRATEGIES


class NoBatchError(Exception):
    """There is not one batch for each replica."""


@dataclasses.dataclass
class Told:
    """What a part of the training tells.

    Attributes:
      reason: why it stopped.
      step: the last.
      losses: by step, of all its steps.
      seen: by step, the summary of the first replica's last batch.
      logged: the steps with a line in metrics.jsonl.
      recorded: the steps with summaries in the event file.
    """

    reason: str
    step: int
    losses: dict[int, float]
    seen: dict[int, float]
    logged: list[int]
    recorded: list[int]


class Truth:
    """An eager training, part for part.

    Attributes:
      step: the global step.
      saved: by step, the variables of the checkpoints that are kept.
    """

    def __init__(self, program):
        self.program = program
        weights, self._state = layers.first_weights(program)
        self._weights = {name: tf.Variable(w, name=name) for name, w in weights.items()}
        self._averages = dict(weights) if program.average_decay is not None else {}
        self._counters = [0.0] * len(program.counters)
        self._optimizer, self._tell_optimizer = make_eagerly(program.optimizer)
        self.step = 0
        self.saved = {}
        self._listed = []
        self._position = None  # An iterator, where the input goes on.

    def train(self, part):
        """Makes the steps of a part and returns what it tells."""
        num_replicas = STRATEGIES[part.strategy]
        end = part.max_steps if part.steps is None else self.step + part.steps
        if end is not None and self.step >= end:
            return Told("max_steps", self.step, {}, {}, [], [])
        first, told = self.step, Told("", 0, {}, {}, [], [])
        self._listed_before = list(self._listed)
        if not self.saved and part.save_every:
            self._save(part)
        is_resumed = part.resume_input and self._position is not None
        batches = self._position if is_resumed else self._start_input()
        self._states = [dict(self._state) for _ in range(num_replicas)]
        while not told.reason:
            made = self._make_step(batches, num_replicas, told)
            if made == 0 and self.step == first and is_resumed:
                batches, is_resumed = self._start_input(), False
                continue
            if made == 0 and self.step == first:
                raise NoBatchError
            if made < self.program.window:
                told.reason = "end of input"
            elif self.step == end:
                told.reason = "steps" if part.max_steps is None else "max_steps"
            if made and part.save_every and self.step % part.save_every == 0:
                self._save(part)
        told.step = self.step
        is_kept = part.resume_input and told.reason != "end of input"
        self._position = batches if is_kept else None
        self._save(part)
        self._note_loops(part, first, end, told)
        return told

    def _note_loops(self, part, first, end, told):
        """Notes what is logged and recorded at the ends of loops.

        A loop is cut where a checkpoint, a summary or the end is due, and where the input ends. The
        first of all is recorded, too. A log is due at the end of a loop that goes over a multiple,
        and at the end of training.
        """
        before = first
        while before < self.step:
            ends = [before + part.loop, *([] if end is None else [end])]
            ends += [next_due(before, n) for n in (part.save_every, part.summary_every) if n]
            planned = min(ends)
            step = min(planned, self.step)
            is_due = is_due_in(before, planned, part.summary_every) and step == planned
            if part.summary_every and (is_due or before == 0):
                told.recorded.append(step)
            if is_due_in(before, step, part.log_every) or step == self.step:
                told.logged.append(step)
            before = step

    def _start_input(self):
        # The program shuffles by the seed of its graph, and this by that of eager ops, which
        # another test may have set.
        tf.random.set_seed(None)
        return iter(data.make_numbers(self.program.input).as_numpy_iterator())

    def _make_step(self, batches, num_replicas, told):
        """Returns how many batches each replica had."""
        losses, sums = [], []
        for _ in range(self.program.window):
            rows = list(itertools.islice(batches, num_replicas))
            if len(rows) < num_replicas:
                break
            loss, gradients = self._run_batch(rows)
            losses.append(loss)
            sums.append(gradients)
            if len(losses) < self.program.window:
                self._update_averages()  # They are of the train_op, which each batch runs.
            told.seen[self.step + 1] = float(data.X[rows[0]].mean())
        if losses:
            self._apply([mean_of(parts, len(losses)) for parts in zip(*sums, strict=True)])
            self.step += 1
            told.losses[self.step] = float(np.mean(losses))
            if len(losses) == self.program.window:
                self._update_averages()
        return len(losses)

    def _run_batch(self, rows):
        """Runs one batch on each replica: returns the mean loss and the reduced gradients."""
        losses, everyone = [], []
        amounts = [self._amounts(numbers) for numbers in rows]
        counted = self._count(amounts)
        for replica, numbers in enumerate(rows):
            features, labels = data.features_of(numbers), data.LABELS[numbers]
            with tf.GradientTape() as tape:
                logits, state = layers.forward(
                    self.program, self._weights, self._states[replica], features, True, self.step
                )
                loss, _ = layers.loss_of(self.program, self._weights, logits, labels, features)
                for counter, now in zip(self.program.counters, counted[replica], strict=True):
                    if counter.wired == "loss":
                        loss *= 1 + 0.01 * now
            everyone.append(tape.gradient(loss, list(self._weights.values())))
            losses.append(float(loss))
            self._states[replica] = state
        self._state = {name: self._merged(name) for name in self._state}
        count = 1 if self._is_sum() else len(rows)
        gradients = [mean_of(parts, count) for parts in zip(*everyone, strict=True)]
        return np.mean(losses), gradients

    def _is_sum(self):
        cross = self.program.cross
        return self.program.loss == "v1_sum" if cross is None else cross.reduction == "sum"

    def _merged(self, name):
        """What a checkpoint has of the replicas' states: the mean, or the first's if whole."""
        values = [state[name] for state in self._states]
        return values[0] if isinstance(values[0], int) else np.mean(values, axis=0)

    def _amounts(self, numbers):
        amounts = {"one": 1.0, "rows": len(numbers), "mean": float(data.X[numbers].mean())}
        times = {"while": 3, "cond": int(self.step % 2 == 0)}
        return [amounts[c.amount] * times.get(c.wired, 1) for c in self.program.counters]

    def _count(self, amounts):
        """Adds to the counters; returns what each replica reads of each of them then."""
        reads = [[] for _ in amounts]
        for i, counter in enumerate(self.program.counters):
            before, added = self._counters[i], [amount[i] for amount in amounts]
            rule = counter.aggregation.removesuffix("_on_read")
            by = {"first": added[0], "sum": sum(added), "mean": float(np.mean(added))}
            self._counters[i] = before + by[rule]
            for read in reads:
                read.append(self._counters[i])
        return reads

    def _apply(self, gradients):
        if self.program.window > 1:
            # One gradient a row. Of rows that come twice Keras squares each gradient for itself.
            gradients = [with_rows_once(gradient) for gradient in gradients]
        clip_norm = None if self.program.cross is None else self.program.cross.clip_norm
        if clip_norm is not None:
            norm = np.sqrt(sum(float(tf.reduce_sum(tf.square(dense(g)))) for g in gradients))
            factor = clip_norm / max(norm, clip_norm)
            gradients = [scaled(gradient, factor) for gradient in gradients]
        self._tell_optimizer(self.step)
        self._optimizer.apply_gradients(zip(gradients, self._weights.values(), strict=True))

    def _update_averages(self):
        decay = self.program.average_decay
        for name, average in self._averages.items():
            now = self._weights[name].numpy()
            self._averages[name] = decay * average + (1 - decay) * now

    # --- What a checkpoint holds ---

    def _save(self, part):
        if self.step in self.saved:
            return
        self.saved[self.step] = self.variables()
        # A later run may remove those that the file `checkpoint` lists. Without a limit a Saver
        # lists the newest, besides those that were listed when it began.
        self._listed = [*(self._listed if part.keep else self._listed_before), self.step]
        while part.keep and len(self._listed) > part.keep:
            del self.saved[self._listed.pop(0)]

    def variables(self):
        """The values of all variables now, by their names; those of Keras optimizers by the end."""
        values = {name: w.numpy() for name, w in self._weights.items()}
        values |= self._state
        values |= {f"counter_{i}": value for i, value in enumerate(self._counters)}
        values |= {
            f"{name}/ExponentialMovingAverage": value for name, value in self._averages.items()
        }
        slots = self._optimizer.variables
        slots = slots() if callable(slots) else slots
        values |= {slot.name.partition(":")[0]: slot.numpy() for slot in slots}
        return {**values, "global_step": self.step}


def is_due_in(before, step, every):
    """Whether something that is done every so many steps is due after those up to `step`."""
    return every is not None and step // every > before // every


def next_due(step, every):
    """The first step after `step` at which it is due."""
    return (step // every + 1) * every


def dense(gradient):
    """A gradient as a tensor."""
    return tf.convert_to_tensor(gradient)


def scaled(gradient, factor):
    """A gradient times a number."""
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(gradient.values * factor, gradient.indices, gradient.dense_shape)
    return gradient * factor


def mean_of(gradients, count):
    """The sum of gradients over `count`; of sparse ones, with the rows of all of them."""
    if isinstance(gradients[0], tf.IndexedSlices):
        values = tf.concat([gradient.values for gradient in gradients], 0) / count
        indices = tf.concat([gradient.indices for gradient in gradients], 0)
        return tf.IndexedSlices(values, indices, gradients[0].dense_shape)
    return tf.add_n(list(gradients)) / count


def with_rows_once(gradient):
    """The gradient with one entry for each row that it has."""
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    rows, places = tf.unique(gradient.indices)
    values = tf.math.unsorted_segment_sum(gradient.values, places, len(rows))
    return tf.IndexedSlices(values, rows, gradient.dense_shape)


# --- After training ------------------------------------------------------------------------------


def evaluate(program, values, num_replicas):
    """The metrics of `program.check` by a checkpoint's values."""
    check = program.check
    rows = batches_of(check)
    if check.steps is not None:
        rows = rows[: check.steps * num_replicas]
    losses, outputs = [], []
    for numbers in rows:
        features, labels = data.features_of(numbers), data.LABELS[numbers]
        weights, logits = logits_by(program, values, numbers)
        losses += list(layers.loss_of(program, weights, logits, labels, features)[1])
        outputs.append(logits.numpy())
    numbers, logits = np.concatenate(rows), np.concatenate(outputs)
    labels, one_hot = data.LABELS[numbers], np.eye(data.NUM_CLASSES)[data.LABELS[numbers]]
    weights = data.WEIGHTS[numbers] + 0.1
    accuracy, mse = np.mean(logits.argmax(-1) == labels), np.mean((logits - one_hot) ** 2)
    metrics = {
        "v1_mean": logits[:, 0].mean(),
        "v1_weighted": np.sum(logits[:, 0] * weights) / weights.sum(),
        "v1_accuracy": accuracy,
        "v1_mse": mse,
        "k_mean": logits[:, 0].mean(),
        "k_accuracy": accuracy,
        "k_mse": mse,
    }
    found = {name: metrics[name] for name in check.metrics}
    return {**found, "loss": np.mean(losses), "global_step": values["global_step"]}


def predict(program, values):
    """The logits of all examples of `program.check` by a checkpoint's values."""
    rows = batches_of(program.check)
    return np.concatenate([logits_by(program, values, numbers)[1] for numbers in rows])


def batches_of(check):
    """The numbers of the examples of each batch: a layer may do with each what its mean says."""
    return np.split(
        np.arange(check.num_examples), range(check.batch_size, check.num_examples, check.batch_size)
    )


def logits_by(program, values, numbers):
    """(weights, logits) of examples by a checkpoint's values."""
    names, state = layers.first_weights(program)
    weights = {name: tf.constant(values[name]) for name in names}
    state = {name: values[name] for name in state}
    features = data.features_of(numbers)
    return weights, layers.forward(program, weights, state, features, False, None)[0]
