"""What hooks run by themselves between steps, against NumPy, for random programs."""

import os
import random

import numpy as np
import pytest
import tensorflow as tf

import estimator as est

v1 = tf.compat.v1

NUM_VARIABLES = 4
NUM_STATEMENTS = 14
NUM_STEPS = 6

# Statements: a value of a variable and the one before, an assignment that each step runs, and one
# that is left to hooks.
KINDS = ("value", "value", "step", "hook")
# An assignment may be in a branch that is taken if the value is positive, and in a function.
FORMS = ("plain", "cond", "function")


def assign(variable, value, form):
    """Returns an op that assigns."""
    if form == "plain":
        return variable.assign(value).op

    def assigned():
        with tf.control_dependencies([variable.assign(value, read_value=False)]):
            return tf.identity(value)

    if form == "cond":
        return tf.cond(value > 0, assigned, variable.read_value).op
    return tf.function(assigned)().op


class Program:
    """Random statements, as a `model_fn` and as NumPy.

    Attributes:
      statements: (kind, variable, place of the value that is used or None, constant, form of an
        assignment), in order.
    """

    def __init__(self, seed):
        rng = random.Random(seed)
        self.statements = []
        for place in range(NUM_STATEMENTS):
            values = [i for i in range(place) if self.statements[i][0] == "value"]
            used = rng.choice([*values[-3:], None])
            kind = rng.choice(KINDS)
            variable, constant = rng.randrange(NUM_VARIABLES), rng.uniform(-1, 1)
            self.statements.append((kind, variable, used, constant, rng.choice(FORMS)))

    def __call__(self, features, labels, mode):
        del labels
        # The first two are Keras's, whose assignments a step orders.
        layer = tf.keras.layers.Layer()
        names = [f"v{i}" for i in range(NUM_VARIABLES)]
        kept = [layer.add_weight(shape=(), initializer="ones", name=name) for name in names[:2]]
        own = [v1.get_variable(name, initializer=1.0) for name in names[2:]]
        variables = [*(getattr(one, "value", one) for one in kept), *own]
        self.ops, train_ops = [], [v1.assign_add(v1.train.get_global_step(), 1)]
        for kind, variable, used, constant, form in self.statements:
            value = variables[variable].read_value() * 0.5 + constant
            if used is not None:
                value += self.ops[used]
            if kind != "value":
                value = assign(variables[variable], value, form)
            if kind == "step":
                train_ops.append(value)
            self.ops.append(value)
        loss = tf.reduce_mean(features)
        return est.EstimatorSpec(mode, loss=loss, train_op=tf.group(train_ops))

    def behind(self, fetched):
        """Returns the places of the statements that `fetched` need."""
        needed = set(fetched)
        for place in reversed(range(NUM_STATEMENTS)):
            if place in needed and self.statements[place][2] is not None:
                needed.add(self.statements[place][2])
        return needed

    def run(self, state, places):
        """Changes the state as the statements do, and returns their values."""
        found = {}
        for place in sorted(places):
            kind, variable, used, constant, form = self.statements[place]
            found[place] = state[variable] * 0.5 + constant + found.get(used, 0)
            if kind != "value" and (form != "cond" or found[place] > 0):
                state[variable] = found[place]
        return found

    def is_clear(self, places):
        """Returns whether it is defined what a session call does that runs these statements.

        A variable that is assigned must not be read later, and what only hooks run has no order.
        """
        of_steps = self.behind(i for i, one in enumerate(self.statements) if one[0] == "step")
        for variable in range(NUM_VARIABLES):
            places_of = [i for i in sorted(places) if self.statements[i][1] == variable]
            kinds = [self.statements[i][0] for i in places_of]
            is_assigned = len(places_of) > 1 and set(kinds) != {"value"}
            if is_assigned and (kinds[-1] == "value" or not of_steps.issuperset(places_of)):
                return False
        return True


class Runs(est.SessionRunHook):
    """Runs random statements between session calls, and notes what was found."""

    def __init__(self, program, seed):
        self.program, self.rng = program, random.Random(seed)
        self.found = []

    def after_run(self, run_context, run_values):
        del run_values
        names = [f"v{i}" for i in range(NUM_VARIABLES)]
        handles = {v.op.name: v for v in v1.global_variables()}
        reads = [next(v for name, v in handles.items() if name.endswith(one)) for one in names]
        step = v1.train.get_global_step()
        before = run_context.session.run([step, *reads])
        for _ in range(4):
            fetched = self.rng.sample(range(NUM_STATEMENTS), self.rng.randint(1, 3))
            if not self.program.is_clear(self.program.behind(fetched)):
                continue
            values = run_context.session.run([self.program.ops[place] for place in fetched])
            after = run_context.session.run([step, *reads])
            self.found.append((before, fetched, values, after))
            before = after


@pytest.mark.usefixtures("control_flow")
@pytest.mark.parametrize("loop", [1, 3])
@pytest.mark.parametrize("seed", [*range(10), 41, 44])  # In the last two, a branch is not taken.
def test_a_session_call_of_a_hook_runs_what_it_asks_for(tmp_path, seed, loop):
    program = Program(seed)
    hook = Runs(program, seed)
    config = est.RunConfig(iterations_per_loop=loop)
    model = est.Estimator(program, os.fspath(tmp_path), config)
    model.train(lambda: tf.data.Dataset.from_tensors([1.0]).repeat(), hooks=[hook], steps=NUM_STEPS)
    assert len(hook.found) >= NUM_STEPS // loop
    for before, fetched, values, after in hook.found:
        state = list(before[1:])
        found = program.run(state, program.behind(fetched))
        assert after[0] == before[0]
        np.testing.assert_allclose(after[1:], state, rtol=1e-5, atol=1e-6)
        for place, value in zip(fetched, values, strict=True):
            if program.statements[place][0] == "value":
                assert value == pytest.approx(found[place], rel=1e-5, abs=1e-6)
    assert model.get_variable_value("global_step") == NUM_STEPS
