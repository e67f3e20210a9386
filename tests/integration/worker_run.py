"""What the workers of a test's cluster run; each result is a line of JSON on stdout.

python worker_run.py SCENARIO MODEL_DIR [ARGUMENT]
"""

import glob
import json
import os
import signal
import sys
import time

import keras
import numpy as np
import tensorflow as tf

import estimator as est
from estimator.roles.ps_task import serve_parameters
from tests.toy import checkpoint_steps

v1 = tf.compat.v1
NUM_EXAMPLES, BATCH_SIZE, NUM_FEATURES = 96, 12, 4
_random = np.random.RandomState(3)
FEATURES = _random.randn(NUM_EXAMPLES, NUM_FEATURES).astype(np.float32)
LABELS = FEATURES @ np.float32([[1], [-2], [0.5], [3]])


def say(**values):
    print(json.dumps(values), flush=True)


def make_input_fn(num_epochs=1, seed=None):
    """Examples divided among the workers; a global batch is the same for any number of them."""

    def input_fn(params, input_context):
        ids = np.arange(NUM_EXAMPLES)
        data = tf.data.Dataset.from_tensor_slices(({"id": ids, "x": FEATURES}, LABELS))
        data = data.shard(input_context.num_input_pipelines, input_context.input_pipeline_id)
        if seed is not None:
            data = data.shuffle(20, seed=seed)
        return data.repeat(num_epochs).batch(params["batch_size"], drop_remainder=True)

    return input_fn


def model_fn(features, labels, mode, params):
    """A line, with what each example was seen and, if asked for, dropout and a batch norm."""
    w = v1.get_variable("w", [NUM_FEATURES, 1])
    b = v1.get_variable("b", [1], initializer=v1.zeros_initializer())
    if params.get("plain"):
        seen = v1.get_variable("seen", [NUM_EXAMPLES], trainable=False)
        count = keras.Variable(0, trainable=False, dtype="int64", name="count")
        if mode == est.ModeKeys.TRAIN:
            count.assign_add(1)
    else:
        seen = v1.get_variable(
            "seen",
            [NUM_EXAMPLES],
            initializer=v1.zeros_initializer(),
            trainable=False,
            synchronization=tf.VariableSynchronization.ON_READ,
            aggregation=tf.VariableAggregation.SUM,
        )
    x = features["x"]
    if mode == est.ModeKeys.TRAIN and params.get("dropout"):
        x = tf.nn.dropout(x, 0.3, seed=5) + tf.random.normal(tf.shape(x), stddev=0.1)
    output = x @ w + b
    if params.get("norm"):
        # Each worker moves the statistics of its own batches; a checkpoint has their mean.
        output += 0.1 * tf.keras.layers.BatchNormalization(name="norm")(x, training=True)[:, :1]
    if mode == est.ModeKeys.PREDICT:
        return est.EstimatorSpec(mode, predictions={"y": output})
    loss = tf.keras.losses.MeanSquaredError()(labels, output)
    v1.summary.scalar("error", loss)
    optimizer = est.CrossShardOptimizer(v1.train.AdamOptimizer(0.05))
    train_op = optimizer.minimize(loss, v1.train.get_global_step())
    if mode == est.ModeKeys.TRAIN:
        note = seen.assign_add(tf.reduce_sum(tf.one_hot(features["id"], NUM_EXAMPLES), 0))
        train_op = tf.group(train_op, note)
    metrics = {"error": v1.metrics.mean(tf.abs(output - labels))}
    return est.EstimatorSpec(mode, loss=loss, train_op=train_op, eval_metric_ops=metrics)


class Weights(v1.train.SessionRunHook):
    """Says this worker's own weights when training ends."""

    def __init__(self, case):
        self._case = case

    def begin(self):
        self._weights = dict.fromkeys((), v1.get_variable)
        self._copies = [
            copy
            for variable in v1.trainable_variables()
            for copy in getattr(variable, "values", [variable])
        ]

    def end(self, session):
        values = [value.ravel().tolist() for value in session.run(self._copies)]
        say(case=self._case, weights=values)


def make_model(model_dir, params=None, **changes):
    defaults = {
        "strategy": "multi_worker_mirrored",
        "tf_random_seed": 7,
        "save_summary_steps": 3,
        "save_checkpoints_steps": 5,
        "session_creation_timeout_secs": 60,
    }
    config = est.tpu.RunConfig(
        est.tpu.TPUConfig(iterations_per_loop=changes.pop("iterations_per_loop", 1)),
        **{**defaults, **changes},
    )
    return est.tpu.TPUEstimator(
        model_fn, model_dir, config, params, train_batch_size=BATCH_SIZE, eval_batch_size=BATCH_SIZE
    )


class SlowEnd(v1.train.CheckpointSaverListener):
    """Takes its time after the last save, and then writes a file."""

    def __init__(self, model_dir):
        self.path = os.path.join(model_dir, "end of the listener")

    def end(self, session, global_step_value):
        time.sleep(1)
        with open(self.path, "w"):
            pass


def checkpoint_step(line):
    return int(line.latest_checkpoint().rsplit("-", 1)[1])


def say_context(mode, params, input_context):
    """An input_fn that says which host calls it."""
    context = params["context"]
    hosts = [context.current_host, context.num_hosts]
    replicas = [context.num_of_replicas_per_host, context.num_replicas]
    call = context.current_input_fn_deployment()[1:]
    say(case=f"context of {mode}", hosts=hosts, replicas=replicas, call=call)
    return make_input_fn()(params, input_context)


def verbs(model_dir, loops):
    """Every verb, for each size of the loop: one pass, whose end all workers see together."""
    for loop in map(int, loops.split(",")):
        with make_model(os.path.join(model_dir, f"loop{loop}"), iterations_per_loop=loop) as line:
            slow = SlowEnd(line.model_dir)
            line.train(say_context, hooks=[Weights("pass")], saving_listeners=[slow])
            say(
                case="saved", step=checkpoint_step(line), is_listener_done=os.path.exists(slow.path)
            )
            result = line.train_result
            say(case="result", step=result.global_step, reason=result.reason, loss=result.loss)
            if line.config.is_chief:
                metrics = line.evaluate(say_context)
                say(case="evaluation", **{k: float(v) for k, v in metrics.items()})
            line.train(make_input_fn(2), max_steps=12, hooks=[Weights("more")])
            say(case="more result", reason=line.train_result.reason)


def resume(model_dir, worker_to_kill, step, is_async="False"):
    """Shuffled input, dropout, batch norm; one worker kills itself in the call of a step."""
    how = {"iterations_per_loop": 3, "async_checkpoints": is_async == "True"}
    with make_model(model_dir, {"dropout": True, "norm": True}, **how) as line:
        is_victim = line.config.task_id == int(worker_to_kill)
        hooks = [KillAtStep(int(step))] if is_victim else []
        line.train(make_input_fn(None, seed=4), hooks=hooks, max_steps=25)


class KillAtStep(v1.train.SessionRunHook):
    """Kills this process after the session call that reaches a step."""

    def __init__(self, step):
        self._step = step

    def before_run(self, run_context):
        return v1.train.SessionRunArgs(v1.train.get_global_step())

    def after_run(self, run_context, run_values):
        if run_values.results >= self._step:
            os.kill(os.getpid(), signal.SIGKILL)


class FailAtStep(v1.train.SessionRunHook):
    def after_run(self, run_context, run_values):
        if run_context.session.run(v1.train.get_global_step()) == 5:
            raise ZeroDivisionError("in a hook")


class FailAtBegin(v1.train.SessionRunHook):
    def begin(self):
        raise OSError("in begin")


class FailToSave(v1.train.CheckpointSaverListener):
    def before_save(self, session, global_step):
        raise OSError("No space left on device")


def fails(model_dir):
    """Trains again after errors that the process catches, each of one worker."""

    seen = []
    failing = None

    def model_fn(features, labels, mode):
        if failing == "model_fn":
            raise OSError("in model_fn")
        if failing == "program":
            context = tf.distribute.get_replica_context()
            context.all_reduce(tf.distribute.ReduceOp.SUM, tf.ones([]))
        return average_model_fn(features, labels, mode)

    def missing_input_fn():
        raise OSError("in input_fn")

    def check(number):
        seen.append(number)
        if len(seen) == 5:
            raise KeyError("in the input")
        return number

    def bad_input_fn():
        return numbers(None)().map(
            lambda x: tf.ensure_shape(tf.numpy_function(check, [x], x.dtype), x.shape)
        )

    config = est.RunConfig(
        model_dir,
        strategy="multi_worker_mirrored",
        save_checkpoints_steps=3,
        keep_checkpoint_max=None,
    )
    with est.Estimator(model_fn, config=config) as trained:
        cases = (
            ("model_fn", ("worker", 1), {}),
            ("input_fn", ("chief", 0), {"input_fn": missing_input_fn}),
            ("begin", ("worker", 0), {"hooks": [FailAtBegin()]}),
            ("program", ("worker", 1), {}),
            ("hook", ("worker", 1), {"hooks": [FailAtStep()]}),
            ("save", ("chief", 0), {"saving_listeners": [FailToSave()]}),
            ("none", None, {}),
            ("input", ("worker", 1), {"input_fn": bad_input_fn}),
        )
        for case, who, given in cases:
            step = error = None
            is_me = who == (config.task_type, config.task_id)
            failing = case if is_me else None
            max_steps = 40 if case == "input" else 20
            arguments = {"input_fn": numbers(None), "max_steps": max_steps}
            try:
                trained.train(**(arguments | (given if is_me else {})))
                step = trained.train_result.global_step
            except (ZeroDivisionError, OSError, ValueError, tf.errors.OpError) as caught:
                error = f"{type(caught).__name__}: {caught}"
            say(case=case, step=step, error=error)


def endless(model_dir):
    """Training without an end, until a signal comes."""

    class Say(v1.train.SessionRunHook):
        def after_run(self, run_context, run_values):
            print("begun", flush=True)

    with make_model(
        model_dir, iterations_per_loop=50, save_summary_steps=None, save_checkpoints_steps=None
    ) as line:
        line.train(make_input_fn(None), hooks=[Say()])


def dies_before_the_first_step(model_dir):
    """Worker 1 is gone after it has joined; the other waits for it in its first step."""

    class Die(v1.train.SessionRunHook):
        def after_create_session(self, session, coord):
            os.kill(os.getpid(), signal.SIGKILL)

    with make_model(model_dir) as line:
        line.train(make_input_fn(), hooks=[Die()] if line.config.task_id else [])


def lonely(model_dir):
    """The others never come."""
    with make_model(model_dir, session_creation_timeout_secs=1) as line:
        line.train(make_input_fn())


def stops(model_dir):
    """Why workers stop: uneven inputs, NaN, a hook of one of them; each in its own directory."""
    cases = iter(range(100))

    def run(case, model_fn, input_fn, loop, hooks=(), listeners=None, **changes):
        config = est.RunConfig(
            os.path.join(model_dir, str(next(cases))),
            strategy="multi_worker_mirrored",
            iterations_per_loop=loop,
            **{"save_checkpoints_steps": 3, "keep_checkpoint_max": None, **changes},
        )
        with est.Estimator(model_fn, config=config) as trained:
            step = None
            try:
                trained.train(input_fn, list(hooks), max_steps=20, saving_listeners=listeners)
                step, reason = trained.train_result.global_step, trained.train_result.reason
            except (ValueError, v1.train.NanLossDuringTrainingError) as error:
                reason = str(error)
            latest = trained.latest_checkpoint() if config.is_chief else None
            w = float(trained.get_variable_value("w")) if latest else None
            saved = checkpoint_steps(trained.model_dir)
            say(case=case, loop=loop, step=step, reason=reason, latest=latest, w=w, saved=saved)

    index = est.RunConfig().task_id
    for loop in (1, 100):
        run("uneven", average_model_fn, numbers(10 if index == 0 else 7), loop)
        run("empty", average_model_fn, numbers(10 if index == 0 else 0), loop)
        for policy in ("raise", "stop", "skip"):
            # Only worker 1's example of its step 5 is bad.
            bad = numbers(12, nan_at=4 if index == 1 else None)
            run(policy, average_model_fn, bad, loop, nan_policy=policy)
        hooks = [StopAfterCalls(2)] if index == 1 else []
        run("hook", average_model_fn, numbers(None), loop, hooks)
        hooks = [CutsLoops(f"{model_dir}/profile{loop}")] if index == 1 else []
        run("cut by one", average_model_fn, numbers(None), loop, hooks, save_summary_steps=5)
    for count in (None, 7, 6, 0):
        mine = 10 if count is not None and index == 0 else count
        run(f"tensors: {count}", average_model_fn, tensors(mine), 3)
    run("listener", average_model_fn, numbers(None), 100, listeners=[StopsAtSave()])
    by_clock = {"save_checkpoints_steps": None, "save_checkpoints_secs": 1e-6}
    run("clock", average_model_fn, numbers(None), 1, **by_clock)
    run("saver hook", saving_model_fn, numbers(None), 100)
    hooks = [v1.train.CheckpointSaverHook(f"{model_dir}/other", save_steps=4)]
    run("saver hook and statistics", summing_model_fn, numbers(None), 1, hooks)


def reduced_model_fn(features, labels, mode, params):
    """The same weights as `average_model_fn`, by other collectives."""
    features = tf.cast(features, params["dtype"])
    w = v1.get_variable("w", [], features.dtype, v1.zeros_initializer())
    loss = tf.reduce_mean(tf.square(w - features)) / 2
    if params["shares_loss"]:
        context = tf.distribute.get_replica_context()
        loss = context.all_reduce(tf.distribute.ReduceOp.MEAN, loss)
    train_op = v1.train.GradientDescentOptimizer(0.5).minimize(loss, v1.train.get_global_step())
    return est.EstimatorSpec(mode, loss=loss, train_op=train_op)


def reduced(model_dir):
    """Gradients that leave no room for a report, and a loss that needs one to be reduced."""
    base = est.RunConfig(strategy="multi_worker_mirrored")
    for dtype, shares_loss in (("float32", True), ("float64", False)):
        for loop in (1, 100):
            case = f"{dtype} {loop}"
            config = base.replace(model_dir=f"{model_dir}/{case}", iterations_per_loop=loop)
            params = {"dtype": dtype, "shares_loss": shares_loss}
            with est.Estimator(reduced_model_fn, config=config, params=params) as model:
                model.train(numbers(5 - 2 * config.task_id), hooks=[Weights(case)])
                end = model.train_result
                say(case=f"{case} end", loss=end.loss, step=end.global_step, reason=end.reason)


def average_model_fn(features, labels, mode):
    """Pulls `w` halfway to the mean of the features of all replicas."""
    w = v1.get_variable("w", [], initializer=v1.zeros_initializer())
    loss = tf.reduce_mean(tf.square(w - features)) / 2
    train_op = v1.train.GradientDescentOptimizer(0.5).minimize(loss, v1.train.get_global_step())
    return est.EstimatorSpec(mode, loss=loss, train_op=train_op)


def numbers(count, nan_at=None):
    """0, 1, 2, ... one a batch, in each worker."""

    def input_fn():
        data = tf.data.Dataset.counter() if count is None else tf.data.Dataset.range(count)

        bad = tf.constant(-1 if nan_at is None else nan_at, tf.int64)

        def make(i):
            return tf.where(tf.equal(i, bad), np.nan, tf.cast(i, tf.float32))

        return data.map(make).batch(1)

    return input_fn


def tensors(count):
    """The same numbers as the tensors of an iterator, not as a dataset."""

    def input_fn():
        iterator = v1.data.make_initializable_iterator(numbers(count)())
        v1.add_to_collection(v1.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
        return iterator.get_next()

    return input_fn


def tensors_end(model_dir):
    """Without loops nobody knows before a step whether there are tensors for it. Trains again."""
    config = est.RunConfig(model_dir, strategy="multi_worker_mirrored")
    with est.Estimator(average_model_fn, config=config) as model:
        for input_fn in (tensors(4 if config.task_id == 0 else 8), numbers(None)):
            error = None
            try:
                model.train(input_fn, steps=10)
            except (ValueError, tf.errors.OpError) as caught:
                error = f"{type(caught).__name__}: {caught}"
            say(error=error)


def saving_model_fn(features, labels, mode, config):
    """A hook of the chief saves, and the library does not."""
    spec = average_model_fn(features, labels, mode)
    hook = v1.train.CheckpointSaverHook(config.model_dir, save_steps=4)
    return spec._replace(training_chief_hooks=[hook])


def summing_model_fn(features, labels, mode):
    """A variable of which a checkpoint holds the sum over all workers."""
    v1.get_variable(
        "seen",
        [],
        trainable=False,
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.SUM,
    )
    return average_model_fn(features, labels, mode)


class StopsAtSave(v1.train.CheckpointSaverListener):
    def after_save(self, session, global_step_value):
        return global_step_value == 6


class StopAfterCalls(v1.train.SessionRunHook):
    def __init__(self, calls):
        self._calls = calls

    def after_run(self, run_context, run_values):
        self._calls -= 1
        if self._calls == 0:
            run_context.request_stop()


class CutsLoops(v1.train.ProfilerHook):
    """A stock hook that cuts loops, here those of one worker alone."""

    def __init__(self, output_dir):
        with tf.Graph().as_default():
            super().__init__(save_steps=4, output_dir=output_dir)


def differs(model_dir):
    """Workers that do not run the same program; what each is told."""
    index = est.RunConfig().task_id

    def run(case, model_fn, max_steps=3, hooks=(), **changes):
        config = est.RunConfig(model_dir, strategy="multi_worker_mirrored", **changes)
        try:
            model = est.Estimator(model_fn, config=config)
            model.train(numbers(9), hooks, max_steps=max_steps)
        except ValueError as error:
            say(case=case, error=str(error))

    def other_model_fn(features, labels, mode):
        v1.get_variable("more", [3, index + 1])
        if index:
            v1.get_variable("only_there", [])
        return average_model_fn(features, labels, mode)

    def summarizing_model_fn(features, labels, mode):
        value, update = v1.metrics.mean(features)
        v1.summary.scalar("running_mean", value)
        spec = average_model_fn(features, labels, mode)
        return spec._replace(train_op=tf.group(spec.train_op, update))

    lose_position(f"{model_dir}/position", index)
    run("model", other_model_fn)
    run("loop", average_model_fn, iterations_per_loop=1 + index)
    run("steps", average_model_fn, max_steps=3 + index)
    hook = v1.train.CheckpointSaverHook(model_dir, save_steps=1)
    run("hooks", average_model_fn, hooks=[] if index else [hook])
    stop = v1.train.StopAtStepHook(last_step=2)
    run("stop", average_model_fn, hooks=[] if index else [stop])
    for loop in (1, 3):
        run(f"summary {loop}", summarizing_model_fn, iterations_per_loop=loop)
    # One that ends while the other still reads what it was told would be taken for lost.
    told = [f"{model_dir}/told-{i}" for i in range(2)]
    with open(told[index], "w"):
        while not os.path.exists(told[1 - index]):
            time.sleep(0.05)


def lose_position(model_dir, index):
    """One worker's position in its input is lost between two runs."""
    with make_model(model_dir) as line:
        input_fn = make_input_fn(None)
        line.train(input_fn, max_steps=3)
        if index == 1:
            for path in glob.glob(f"{model_dir}/**/*worker-1-of-2*", recursive=True):
                os.remove(path)
        line.train(input_fn, max_steps=5)


def kinds(model_dir, *names):
    """The public object, several devices in each process, and Keras layers with a state."""
    if "object" in names:
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        for loop in (1, 100):
            with make_model(
                f"{model_dir}/object{loop}",
                strategy=None,
                train_distribute=strategy,
                iterations_per_loop=loop,
            ) as line:
                line.train(make_input_fn(), hooks=[Weights(f"object {loop}")])
    if "devices" in names:
        for loop in (1, 100):
            with make_model(
                f"{model_dir}/devices{loop}", num_replicas=2, iterations_per_loop=loop
            ) as line:
                line.train(make_input_fn(), hooks=[Weights(f"devices {loop}")])
    if "keras" in names:
        for loop in (1, 100):
            config = est.RunConfig(
                f"{model_dir}/keras{loop}",
                strategy="multi_worker_mirrored",
                tf_random_seed=3,
                iterations_per_loop=loop,
            )
            with est.Estimator(keras_model_fn, config=config, params={"batch_size": 6}) as line:
                line.train(make_input_fn(), hooks=[Weights(f"keras {loop}")])
                if config.is_chief:
                    statistics = line.get_variable_value("batch_normalization/moving_mean")
                    say(case=f"statistics {loop}", mean=statistics.tolist())


def keras_model_fn(features, labels, mode, params):
    """Batch normalization, whose statistics are averaged when saved; the mask of a dropout."""
    x = tf.keras.layers.BatchNormalization(momentum=0.5)(features["x"], training=True)
    mask = tf.keras.layers.Dropout(0.5, seed=1)(tf.ones([1, 64]), training=True)
    masks = v1.get_variable(
        "masks",
        [64],
        trainable=False,
        initializer=v1.zeros_initializer(),
        synchronization=tf.VariableSynchronization.ON_READ,
        aggregation=tf.VariableAggregation.SUM,
    )
    loss = tf.reduce_mean(tf.square(tf.keras.layers.Dense(1)(x) - labels))
    note = masks.assign_add(tf.cast(mask[0] > 0, tf.float32))
    optimizer = v1.train.GradientDescentOptimizer(0.1)
    train_op = tf.group(note, optimizer.minimize(loss, v1.train.get_global_step()))
    return est.EstimatorSpec(mode, loss=loss, train_op=train_op)


def asynchronous(model_dir, loops):
    """Variables on ps tasks; the chief and the workers train on their shards at their own pace."""
    config = est.RunConfig()
    if config.task_type == "ps":
        sys.exit(serve_parameters(config))
    for loop in map(int, loops.split(",")):
        with make_model(
            f"{model_dir}/loop{loop}",
            {"plain": True},
            strategy=None if loop == 1 else "parameter_server",
            iterations_per_loop=loop,
            save_checkpoints_steps=20,
            save_summary_steps=20,
        ) as line:
            line.train(make_input_fn(None), hooks=[Placed()], max_steps=60)
            result = line.train_result
            say(case=f"async {loop}", step=result.global_step, reason=result.reason)
            if config.is_chief:
                metrics = line.evaluate(make_input_fn())
                say(case=f"evaluation {loop}", loss=float(metrics["loss"]))


def devices_and_ps(model_dir):
    """Two devices a worker, whose variables ps tasks hold; each global batch is cut in two."""
    config = est.RunConfig()
    if config.task_type == "ps":
        sys.exit(serve_parameters(config))
    for loop, placement in ((1, "by_size"), (100, "round_robin")):
        with make_model(
            f"{model_dir}/loop{loop}",
            strategy="parameter_server",
            num_replicas=2,
            iterations_per_loop=loop,
            ps_placement=placement,
        ) as line:
            line.train(make_input_fn(), hooks=[Placed()])
            result = line.train_result
            say(case=f"devices {loop}", step=result.global_step, reason=result.reason)
            if config.is_chief:
                say(case=f"evaluation {loop}", loss=float(line.evaluate(make_input_fn())["loss"]))

    def sync_model_fn(features, labels, mode):
        spec = average_model_fn(features, labels, mode)
        optimizer = v1.train.SyncReplicasOptimizer(
            v1.train.GradientDescentOptimizer(0.01), replicas_to_aggregate=2
        )
        return spec._replace(train_op=optimizer.minimize(spec.loss, v1.train.get_global_step()))

    config = config.replace(strategy="parameter_server", num_replicas=2)
    try:
        est.Estimator(sync_model_fn, f"{model_dir}/sync", config).train(numbers(4))
    except ValueError as error:
        say(case="sync", error=str(error))


def synchronous(model_dir, end):
    """SyncReplicasOptimizer over two workers, by size and in parts; the public object.

    If the chief's hook is the end, the other worker waits in a step for a gradient of the chief.
    """
    config = est.RunConfig()
    if config.task_type == "ps":
        sys.exit(serve_parameters(config))

    def sync_model_fn(features, labels, mode, config, params):
        table = v1.get_variable(
            "table", [100, 4], partitioner=v1.fixed_size_partitioner(2), dtype=tf.float32
        )
        rows = v1.nn.embedding_lookup(table, features["id"], partition_strategy="div")
        w = v1.get_variable("w", [NUM_FEATURES, 1])
        b = v1.get_variable("b", [1])
        loss = tf.reduce_mean(tf.square(tf.reduce_sum(rows, 1, keepdims=True) + b - labels))
        loss += tf.reduce_mean(tf.square(features["x"] @ w - labels))
        optimizer = v1.train.SyncReplicasOptimizer(
            v1.train.GradientDescentOptimizer(0.01), replicas_to_aggregate=2, total_num_replicas=2
        )
        train_op = optimizer.minimize(loss, v1.train.get_global_step())
        hook = optimizer.make_session_run_hook(config.is_chief)
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op, training_hooks=[hook])

    changes = {"save_checkpoints_steps": None, "ps_placement": "by_size", "tf_random_seed": 1}
    config = est.RunConfig(f"{model_dir}/sync", strategy="parameter_server", **changes)
    params = {"batch_size": 6}
    model = est.Estimator(sync_model_fn, config=config, params=params)
    if end == "hook":
        hooks = [est.StopAtStepHook(last_step=20)] if config.is_chief else []
        model.train(make_input_fn(None), hooks=[Placed(), *hooks])
    else:
        model.train(make_input_fn(None), hooks=[Placed()], max_steps=20)
    say(case="sync", step=model.train_result.global_step)
    try:
        looped = config.replace(model_dir=f"{model_dir}/loop", iterations_per_loop=10)
        est.Estimator(sync_model_fn, config=looped, params=params).train(make_input_fn(None))
    except ValueError as error:
        say(case="loop", error=str(error))
    strategy = v1.distribute.experimental.ParameterServerStrategy(
        tf.distribute.cluster_resolver.TFConfigClusterResolver()
    )
    for loop in (1, 10):
        config = est.RunConfig(
            f"{model_dir}/object{loop}", train_distribute=strategy, iterations_per_loop=loop
        )
        model = est.Estimator(average_model_fn, config=config)
        model.train(numbers(None), hooks=[Placed()], max_steps=20)
        say(case="object", step=model.train_result.global_step)


def roles(model_dir, strategy, ending):
    """`train_and_evaluate` in every task; training ends by `ending`."""
    config = est.RunConfig(
        model_dir,
        strategy=strategy,
        iterations_per_loop=5,
        save_checkpoints_steps=10,
        keep_checkpoint_max=None,
        session_creation_timeout_secs=60,
    )

    def evaluated_model_fn(features, labels, mode):
        if mode == est.ModeKeys.PREDICT:
            return est.EstimatorSpec(mode, predictions=features["x"] * 2.0)
        return average_model_fn(features, labels, mode)

    def fails(features, labels, mode):
        raise RuntimeError("the model is bad")

    is_bad = ending == "error" and config.task_type != "ps"
    model = est.Estimator(fails if is_bad else evaluated_model_fn, config=config)
    hooks = []
    if ending == "early stop":
        hooks = [est.experimental.make_early_stopping_hook(model, lambda: True, None, 30)]
    receiver_fn = est.export.build_raw_serving_input_receiver_fn({"x": tf.TensorSpec([None])})
    eval_spec = est.EvalSpec(
        numbers(4),
        steps=None,
        exporters=est.LatestExporter("latest", receiver_fn),
        start_delay_secs=0,
        throttle_secs=0,
    )
    # The others go on until they are told: the end is far off where it is not what ends training.
    max_steps = {"end of input": None, "early stop": 1_000_000}.get(ending, 60)
    train_spec = est.TrainSpec(
        numbers(25 if ending == "end of input" else None),
        max_steps=max_steps,
        hooks=hooks,
    )
    result = est.train_and_evaluate(model, train_spec, eval_spec)
    metrics = result.metrics and {k: float(v) for k, v in result.metrics.items()}
    say(
        case="role",
        task_type=config.task_type,
        metrics=metrics,
        exports=len([path for path in result.export_results if path]),
        step=result.train_result.global_step,
        reason=result.train_result.reason,
    )


class Placed(v1.train.SessionRunHook):
    """Says on which device each variable is."""

    def begin(self):
        say(case="placed", devices={v.op.name: v.device for v in v1.global_variables()})


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
