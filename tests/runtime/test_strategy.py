import copy
import json

import pytest
import tensorflow as tf

from estimator.cluster.collectives import Workers, num_local_replicas, workers_of
from estimator.config.cluster import parse_tf_config
from estimator.config.run_config import RunConfig
from estimator.config.strategy_names import STRATEGY_NAMES
from estimator.runtime import local
from estimator.runtime.ps_placement import make_variable_placer
from estimator.runtime.strategy import (
    make_runtime,
    make_strategy,
    make_training_runtime,
    runtime_of,
)
from estimator.spec import ModeKeys
from tests.forked import run_text

MODES = (ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT)


def see_gpus(monkeypatch, parts):
    """Makes TensorFlow say that it sees GPUs, each split into so many parts; 0: not split."""
    monkeypatch.setattr(tf.config, "get_visible_devices", {"GPU": parts}.__getitem__)
    monkeypatch.setattr(tf.config, "get_logical_device_configuration", lambda n: [object()] * n)
    monkeypatch.setattr(tf.config.experimental, "get_memory_growth", lambda n: None)


@pytest.fixture
def _no_gpu(monkeypatch):
    see_gpus(monkeypatch, [])


def run_one_step(strategy, session_config):
    """Each replica adds its number, from 1, to a variable; returns each replica's copy."""

    def step():
        variable = tf.compat.v1.get_variable(
            "v",
            [],
            initializer=tf.compat.v1.zeros_initializer(),
            aggregation=tf.VariableAggregation.MEAN,
        )
        context = tf.distribute.get_replica_context()
        number = tf.cast(context.replica_id_in_sync_group + 1, tf.float32)
        return context.merge_call(assign, args=(variable, number)), variable

    def assign(strategy, variable, number):
        mean = strategy.extended.reduce_to(tf.distribute.ReduceOp.MEAN, number, variable)
        return strategy.extended.update(variable, lambda v, x: v.assign_add(x), args=(mean,))

    runtime_of(strategy, RunConfig(), ModeKeys.TRAIN).start_eager_context()
    with tf.Graph().as_default():
        with strategy.scope():
            op, variable = strategy.extended.call_for_each_replica(step)
            ops = strategy.experimental_local_results(op)
            copies = [v.value() for v in strategy.experimental_local_results(variable)]
            init = tf.compat.v1.global_variables_initializer()
        with tf.compat.v1.Session(config=session_config) as session:
            session.run(init)
            session.run(ops)
            return session.run(copies)


@pytest.mark.usefixtures("_no_gpu")
@pytest.mark.parametrize(
    ("name", "num_replicas", "copies"),
    [
        (None, None, [1.0]),
        ("one_device", None, [1.0]),
        ("one_device", 1, [1.0]),
        ("mirrored", None, [1.0]),
        ("mirrored", 1, [1.0]),
        ("mirrored", 2, [1.5, 1.5]),
        ("mirrored", 3, [2.0, 2.0, 2.0]),
        ("central_storage", 1, [1.0]),
        ("central_storage", 2, [1.5]),
    ],
)
def test_a_named_strategy_runs_on_logical_cpus(name, num_replicas, copies):
    config = RunConfig(strategy=name, num_replicas=num_replicas)
    strategy = make_strategy(config, ModeKeys.TRAIN)
    assert strategy.num_replicas_in_sync == (num_replicas or 1)
    session_config = make_runtime(config, ModeKeys.TRAIN).session_config()
    assert session_config.device_count["CPU"] == (num_replicas or 1)
    assert session_config.allow_soft_placement
    assert run_one_step(strategy, session_config) == copies


@pytest.mark.parametrize("name", ["mirrored", "central_storage"])
def test_eager_code_after_training_may_name_a_device_that_is_not_there(name, tmp_path):
    """As one that makes a strategy of two CPUs does, in the process in which it trained."""
    program = (
        "import sys\n"
        "import tensorflow as tf\n"
        "import estimator as est\n"
        "from tests.toy import Model, numbers\n"
        "config = est.RunConfig(strategy=sys.argv[1], num_replicas=2)\n"
        "est.Estimator(Model(), sys.argv[2], config).train(numbers(), steps=1)\n"
        "tf.distribute.MirroredStrategy(['/cpu:0', '/cpu:1'])\n"
    )
    run_text(program, name, tmp_path)


def test_a_strategy_object_that_was_made_eagerly_gets_its_cpus():
    # Off if the first thing that initialized the eager context of this process was in a graph.
    tf.config.set_soft_device_placement(True)
    strategy = tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])
    config = RunConfig(train_distribute=strategy)
    session_config = make_runtime(config, ModeKeys.TRAIN).session_config()
    assert run_one_step(strategy, session_config) == [1.5, 1.5]


def test_making_a_strategy_leaves_the_eager_context_alone():
    program = (
        "import tensorflow as tf\n"
        "from estimator.config.run_config import RunConfig\n"
        "from estimator.runtime.strategy import make_runtime\n"
        "for name in (None, 'one_device', 'mirrored', 'central_storage'):\n"
        "    config = RunConfig(strategy=name)\n"
        "    if name in ('mirrored', 'central_storage'):\n"
        "        config = config.replace(num_replicas=2)\n"
        "    make_runtime(config, 'train').session_config()\n"
        # It raises once the context is initialised.
        "cpu = tf.config.list_physical_devices('CPU')[0]\n"
        "tf.config.set_logical_device_configuration(\n"
        "    cpu, [tf.config.LogicalDeviceConfiguration()] * 3)\n"
        "assert len(tf.config.list_logical_devices('CPU')) == 3\n"
    )
    run_text(program)


@pytest.mark.usefixtures("_no_gpu")
def test_the_scope_around_the_caller_is_not_the_default_strategy():
    with tf.distribute.OneDeviceStrategy("/cpu:0").scope():
        strategy = make_strategy(RunConfig(), ModeKeys.TRAIN)
    assert strategy is tf.distribute.get_strategy()


@pytest.mark.parametrize("mode", MODES)
def test_strategy_holds_for_every_mode(mode):
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    assert make_strategy(RunConfig(strategy=strategy), mode) is strategy


@pytest.mark.parametrize("mode", MODES)
def test_train_and_eval_distribute_hold_for_their_modes(mode):
    train, evaluate = (tf.distribute.OneDeviceStrategy("/cpu:0") for _ in range(2))
    both = RunConfig(train_distribute=train, eval_distribute=evaluate)
    assert make_strategy(both, mode) is (train if mode == ModeKeys.TRAIN else evaluate)
    default = tf.distribute.get_strategy()
    alone = RunConfig(train_distribute=train)
    assert make_strategy(alone, mode) is (train if mode == ModeKeys.TRAIN else default)


@pytest.mark.parametrize(
    ("gpus", "name", "num_replicas", "devices"),
    [
        ([0, 0], "one_device", None, ["GPU:0"]),
        ([0, 0], "mirrored", None, ["GPU:0", "GPU:1"]),
        ([0, 0], "mirrored", 1, ["GPU:0"]),
        ([0, 0], "central_storage", 2, ["GPU:0", "GPU:1"]),
        ([2], "mirrored", None, ["GPU:0", "GPU:1"]),
        ([2, 0], "central_storage", None, ["GPU:0", "GPU:1", "GPU:2"]),
    ],
)
def test_gpus_are_taken_where_there_are_any(monkeypatch, gpus, name, num_replicas, devices):
    see_gpus(monkeypatch, gpus)
    config = RunConfig(strategy=name, num_replicas=num_replicas)
    strategy = make_strategy(config, ModeKeys.TRAIN)
    assert [d.split("device:")[1] for d in strategy.extended.worker_devices] == devices
    assert make_runtime(config, ModeKeys.TRAIN).session_config().device_count["CPU"] == 1


@pytest.mark.parametrize(("gpus", "first"), [([0], [True]), ([], [])])
def test_the_session_config_decides_on_memory_before_a_strategy_can(monkeypatch, gpus, first):
    """What uses a GPU first decides how much of its memory the process takes."""
    see_gpus(monkeypatch, gpus)
    opened = []

    class Session(tf.compat.v1.Session):
        def __init__(self, graph, config):
            opened.append(config.gpu_options.allow_growth)
            super().__init__(graph=graph, config=config)

    monkeypatch.setattr(tf.compat.v1, "Session", Session)
    users = tf.compat.v1.ConfigProto()
    make_strategy(RunConfig(strategy="mirrored", session_config=users), ModeKeys.TRAIN)
    assert opened == []
    users.gpu_options.allow_growth = True
    make_strategy(RunConfig(strategy="mirrored", session_config=users), ModeKeys.TRAIN)
    assert opened == first


@pytest.mark.parametrize("name", ["mirrored", "central_storage"])
def test_more_replicas_than_gpus_is_an_error(monkeypatch, name):
    see_gpus(monkeypatch, [0, 0])
    message = r"`num_replicas` \(3\) must be at most the number of GPUs \(2\). Leave it out"
    with pytest.raises(ValueError, match=message):
        make_strategy(RunConfig(strategy=name, num_replicas=3), ModeKeys.TRAIN)


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("Mirrored", ValueError, "`strategy` .'Mirrored'. is unknown. Did you mean 'mirrored'?"),
        ("banana", ValueError, "Use one of 'one_device', 'mirrored'"),
    ],
)
def test_a_strategy_that_cannot_be_made_is_an_error(name, error, message):
    with pytest.raises(error, match=message):
        make_strategy(RunConfig(strategy=name), ModeKeys.TRAIN)


def clustered(task_type="worker", task_id=0, **roles):
    """A config of a cluster on this machine; no server is started."""
    addresses = {
        role: [f"127.0.0.1:{1000 * place + i}" for i in range(1, count + 1)]
        for place, (role, count) in enumerate(roles.items(), 1)
    }
    task = {"type": task_type, "index": task_id}
    return parse_tf_config(json.dumps({"cluster": addresses, "task": task}))


@pytest.mark.usefixtures("_no_gpu")
@pytest.mark.parametrize("num_replicas", [1, 2])
def test_workers_have_one_strategy_a_process_and_evaluate_alone(num_replicas):
    config = RunConfig(
        strategy="multi_worker_mirrored",
        num_replicas=num_replicas,
        cluster=clustered("worker", 1, chief=1, worker=2),
    )
    strategy = make_strategy(config, ModeKeys.TRAIN)
    assert strategy is make_strategy(config.replace(iterations_per_loop=5), ModeKeys.TRAIN)
    assert strategy.num_replicas_in_sync == 3 * num_replicas
    assert workers_of(strategy) == Workers(3, 2, ("the chief", "worker 0", "worker 1"))
    assert num_local_replicas(strategy) == num_replicas
    session_config = make_runtime(config, ModeKeys.TRAIN).session_config()
    assert session_config.device_count["CPU"] == num_replicas
    assert session_config.isolate_session_state
    assert list(session_config.device_filters) == ["/job:worker/task:1"]
    leader = session_config.experimental.collective_group_leader
    assert leader == "/job:chief/replica:0/task:0"
    for mode in (ModeKeys.EVAL, ModeKeys.PREDICT):
        assert workers_of(make_strategy(config, mode)).count == 1
        assert make_strategy(config, mode).num_replicas_in_sync == num_replicas


@pytest.mark.usefixtures("_no_gpu")
@pytest.mark.parametrize(("num_replicas", "copies"), [(1, [1.0]), (2, [1.5, 1.5])])
def test_an_object_for_workers_evaluates_on_this_ones_devices(num_replicas, copies):
    cluster = clustered("worker", 1, chief=1, worker=2)
    named = RunConfig(strategy="multi_worker_mirrored", num_replicas=num_replicas, cluster=cluster)
    theirs = make_strategy(named, ModeKeys.TRAIN)
    config = RunConfig(train_distribute=theirs, eval_distribute=theirs, cluster=cluster)
    for mode in (ModeKeys.EVAL, ModeKeys.PREDICT):
        strategy = make_strategy(config, mode)
        assert workers_of(strategy).count == 1
        assert run_one_step(strategy, make_runtime(config, mode).session_config()) == copies


def test_variables_go_to_the_ps_task_with_the_fewest_bytes():
    """One of unknown size counts a byte, and a scalar those of its type."""
    place = make_variable_placer(clustered(worker=1, ps=3), "/job:worker/task:0", "by_size")
    with tf.Graph().as_default(), tf.compat.v1.device(place):
        unknown = tf.compat.v1.placeholder(tf.float32)
        made = [
            tf.Variable(value, shape=shape)
            for value, shape in [
                (tf.zeros([10]), None),  # 40 bytes: to the first.
                (unknown, tf.TensorShape(None)),  # 1 byte: to the second.
                (tf.zeros([2], tf.float64), None),  # 16 bytes: to the third.
                (0.0, None),  # 4 bytes: to the second, then 5.
                (tf.zeros([3]), None),  # To the second, then 17.
                (0.0, None),  # To the third.
            ]
        ]
    tasks = [tf.DeviceSpec.from_string(variable.device).task for variable in made]
    assert tasks == [0, 1, 2, 1, 1, 2]


@pytest.mark.usefixtures("_no_gpu")
@pytest.mark.parametrize(
    ("strategy", "roles", "message"),
    [
        (None, {"worker": 2}, "names 2 worker, but the strategy .None. trains in one process"),
        ("mirrored", {"chief": 1, "worker": 1}, "1 chief, 1 worker, but .*'mirrored'.* in one pro"),
        ("parameter_server", {"worker": 2}, "keeps the variables on ps tasks, and TF_CONFIG names"),
        ("multi_worker_mirrored", {"worker": 2, "ps": 1}, "has no use for a ps: .* Leave the ps"),
    ],
)
def test_a_strategy_that_does_not_fit_the_roles_is_an_error(strategy, roles, message):
    config = RunConfig(strategy=strategy, cluster=clustered(**roles))
    with pytest.raises(ValueError, match=message):
        make_training_runtime(config)


@pytest.mark.parametrize("strategy", [None, "parameter_server"])
def test_parameter_servers_need_no_strategy_object(strategy):
    config = RunConfig(strategy=strategy, cluster=clustered("chief", 0, chief=1, worker=1, ps=2))
    assert make_training_runtime(config).num_replicas == 1


def test_a_step_cannot_be_skipped_whose_weights_other_workers_read():
    roles = {"chief": 1, "worker": 1, "ps": 1}
    config = RunConfig(nan_policy="skip", cluster=clustered("chief", 0, **roles))
    with pytest.raises(
        ValueError, match=r"`nan_policy` \('skip'\) cannot .* ps tasks and 2 workers"
    ):
        make_training_runtime(config)
    alone = RunConfig(nan_policy="skip", cluster=clustered("chief", 0, chief=1, ps=1))
    assert make_training_runtime(alone).num_replicas == 1


def test_sessions_see_the_job_of_a_master_under_the_name_that_strategies_know():
    cluster = {"cluster": {"master": ["127.0.0.1:1"], "ps": ["127.0.0.1:2"]}}
    cluster["task"] = {"type": "master", "index": 0}
    config = RunConfig(cluster=parse_tf_config(json.dumps(cluster)))
    assert config.session_config.device_filters == ["/job:ps", "/job:master"]
    made = make_runtime(config, ModeKeys.TRAIN).session_config()
    assert made.device_filters == ["/job:ps", "/job:chief"]


@pytest.mark.usefixtures("_no_gpu")
def test_a_strategy_object_of_another_cluster_is_an_error():
    config = RunConfig(strategy="multi_worker_mirrored", cluster=clustered(worker=2))
    strategy = make_strategy(config, ModeKeys.TRAIN)
    other = RunConfig(train_distribute=strategy, cluster=clustered(worker=3))
    with pytest.raises(ValueError, match="The strategy's cluster .* is not that of the RunConfig"):
        make_training_runtime(other)


@pytest.mark.usefixtures("_no_gpu")
def test_nccl_without_a_gpu_is_an_error():
    options = tf.distribute.experimental.CommunicationOptions(
        implementation=tf.distribute.experimental.CommunicationImplementation.NCCL
    )
    config = RunConfig(
        strategy="multi_worker_mirrored",
        cluster=clustered(worker=2),
        communication_options=options,
    )
    with pytest.raises(ValueError, match=r"`communication_options` .NCCL. needs GPUs"):
        make_strategy(config, ModeKeys.TRAIN)


def test_the_names_are_those_of_the_documentation():
    assert STRATEGY_NAMES == (
        "one_device",
        "mirrored",
        "central_storage",
        "multi_worker_mirrored",
        "parameter_server",
        "tpu",
    )


def test_the_users_session_config_is_copied_and_kept():
    users = tf.compat.v1.ConfigProto(device_count={"CPU": 4}, intra_op_parallelism_threads=3)
    config = RunConfig(strategy="mirrored", num_replicas=2, session_config=users)
    with pytest.MonkeyPatch.context() as patch:
        see_gpus(patch, [])
        made = make_runtime(config, ModeKeys.TRAIN).session_config()
    assert made.device_count["CPU"] == 4
    assert made.intra_op_parallelism_threads == 3
    assert made.allow_soft_placement
    assert not users.allow_soft_placement


def test_a_session_is_as_tf_config_says_and_the_session_config_has_the_last_word():
    """In all verbs; evaluation and prediction open one session for the input, too."""
    program = (
        "import tensorflow as tf\n"
        "import estimator as est\n"
        "from tests.toy import Model, numbers\n"
        "cpu = tf.config.list_physical_devices('CPU')[0]\n"
        "parts = [tf.config.LogicalDeviceConfiguration()] * 3\n"
        "tf.config.set_logical_device_configuration(cpu, parts)\n"
        "tf.config.threading.set_intra_op_parallelism_threads(3)\n"
        "tf.config.threading.set_inter_op_parallelism_threads(4)\n"
        "tf.config.optimizer.set_experimental_options({'remapping': False})\n"
        "class Look(tf.compat.v1.train.SessionRunHook):\n"
        "    def after_create_session(self, session, coord):\n"
        "        assert len(session.list_devices()) == 3, session.list_devices()\n"
        "        opened.append(session._config)\n"
        "for given in (None, tf.compat.v1.ConfigProto(intra_op_parallelism_threads=5)):\n"
        "    estimator = est.Estimator(Model(), config=est.RunConfig(session_config=given))\n"
        "    opened = []\n"
        "    estimator.train(numbers(), steps=1, hooks=[Look()])\n"
        "    estimator.evaluate(numbers(), steps=1, hooks=[Look()])\n"
        "    next(estimator.predict(numbers(), hooks=[Look()]))\n"
        "    assert len(opened) == 3\n"
        "    for config in opened:\n"
        "        assert config.intra_op_parallelism_threads == (5 if given else 3), config\n"
        "        assert config.inter_op_parallelism_threads == 4, config\n"
        "        assert config.graph_options.rewrite_options.remapping == 2, config\n"
    )
    run_text(program)


def test_a_session_config_that_splits_a_gpu_replaces_the_split_of_tf_config(monkeypatch):
    split = tf.compat.v1.ConfigProto()
    split.gpu_options.experimental.virtual_devices.add(memory_limit_mb=[10, 20])
    monkeypatch.setattr(local._tf, "settings_of_tf_config", lambda: copy.deepcopy(split))
    users = tf.compat.v1.ConfigProto()
    runtime = make_runtime(RunConfig(session_config=users), ModeKeys.TRAIN)
    assert runtime.session_config().gpu_options == split.gpu_options
    users.gpu_options.experimental.virtual_devices.add(memory_limit_mb=[30])
    assert runtime.session_config().gpu_options == users.gpu_options
    # TensorFlow refuses these beside a split.
    for users in (
        tf.compat.v1.ConfigProto(gpu_options={"per_process_gpu_memory_fraction": 0.5}),
        tf.compat.v1.ConfigProto(gpu_options={"visible_device_list": "1"}),
    ):
        runtime = make_runtime(RunConfig(session_config=users), ModeKeys.TRAIN)
        assert not runtime.session_config().gpu_options.experimental.virtual_devices


@pytest.mark.parametrize("field", ["strategy", "train_distribute", "eval_distribute"])
def test_the_eager_strategy_of_parameter_servers_is_an_error_that_says_what_to_pass(field):
    # To make one would wait for a cluster.
    eager = object.__new__(tf.distribute.ParameterServerStrategy)
    message = f"`{field}` is a tf.distribute.ParameterServerStrategy, .*strategy=.parameter_se"
    with pytest.raises(ValueError, match=message):
        RunConfig(**{field: eager})
