"""Checks of `_tf`: strategies, how gradients are reduced, TPUs."""

from unittest import mock

import keras
import tensorflow as tf
import tf_keras

from estimator import _tf
from tests._tf.canary.rows import V1, checks, in_loop
from tests.described_tpu import DescribedTPU, make_strategy

TWO_CPUS = V1.ConfigProto(device_count={"CPU": 2})


def mirrored():
    return tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"])


def cluster(task_type="worker"):
    return tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({"worker": ["127.0.0.1:1", "127.0.0.1:2"], "ps": ["127.0.0.1:3"]})
        if task_type == "ps"
        else tf.train.ClusterSpec({"worker": ["127.0.0.1:1", "127.0.0.1:2"]}),
        task_type="worker",
        task_id=0,
        rpc_layer="grpc",
    )


def multi_worker(num_devices=2, number=3):
    options = tf.distribute.experimental.CommunicationOptions()
    return _tf.make_multi_worker_mirrored(cluster(), options, "CPU", num_devices, number)


# --- distribute.py ------------------------------------------------------------------------------


@checks("allows_partitions")
def variables_of_central_storage_may_be_partitioned():
    with tf.Graph().as_default():
        assert not _tf.allows_partitions(mirrored())
        central = tf.distribute.experimental.CentralStorageStrategy(["/cpu:0", "/cpu:1"], "/cpu:0")
        assert _tf.allows_partitions(central)


@checks("keeps_own_copies")
def replicas_that_assign_alone_are_noted():
    def step():
        for variable in alone:
            variable.assign_add(1.0)
        return V1.train.MomentumOptimizer(1.0, 0.9).minimize(2.0 * weight)

    rules = tf.VariableSynchronization.ON_READ, tf.VariableAggregation.SUM
    with tf.Graph().as_default():
        strategy, zero = mirrored(), V1.zeros_initializer()
    with tf.Graph().as_default(), strategy.scope(), _tf.mean_gradients(strategy):
        weight = V1.get_variable("w", [], initializer=zero)
        alone = [V1.get_variable("v", [], initializer=zero, trainable=False)]
        strategy.extended.call_for_each_replica(step)
        V1.get_variable("s", [], synchronization=rules[0], aggregation=rules[1], trainable=False)
        noted = {v.op.name for v in V1.global_variables() if _tf.keeps_own_copies(v)}
        assert len(V1.global_variables()) == 4  # With the slot of the optimizer.
        assert noted == {"v", "s"}


@checks("copies")
def a_variable_has_a_copy_on_each_replica():
    with tf.Graph().as_default():
        with mirrored().scope():
            assert len(_tf.copies(tf.Variable(1.0))) == 2
        plain = tf.Variable(1.0)
        assert _tf.copies(plain)[0] is plain
        with tf.distribute.experimental.CentralStorageStrategy(
            ["/cpu:0", "/cpu:1"], "/cpu:0"
        ).scope():
            wrapped = tf.Variable(1.0)
        assert _tf.copies(wrapped)[0] is not wrapped


@checks("variables_by_handle")
def each_copy_is_found_by_its_handle():
    with tf.Graph().as_default(), mirrored().scope():
        variable = tf.Variable(1.0)
        found = _tf.variables_by_handle()
        assert [found[copy.handle.ref()] for copy in variable.values] == list(variable.values)


@checks("variables_by_name")
def each_copy_is_found_by_the_names_of_v1():
    with tf.Graph().as_default() as graph:
        V1.get_variable("of_v1", [], use_resource=False)  # Has no handle.
        with mirrored().scope():
            variable = tf.Variable(1.0, name="w")
        names = ["w:0", "w/read:0", "w/replica_1:0", "w/replica_1/read:0"]
        found = _tf.variables_by_name(graph)
        assert found.keys() == set(names)
        assert [found[name] for name in names[::2]] == list(variable.values)


@checks("replica_reaches_outer_graphs")
def a_replica_is_left_by_no_init_scope():
    def look(count):
        with strategy.scope():
            return strategy.extended.call_for_each_replica(look_on_replica)

    def look_on_replica():
        def create(next_creator, **kwargs):
            made.append(kwargs["name"])
            return next_creator(**kwargs)

        with (
            tf.variable_creator_scope(create),
            _tf.replica_reaches_outer_graphs(),
            tf.init_scope(),
        ):
            tf.Variable(1.0, name="inside")
            return tf.distribute.get_replica_context() is not None

    made, strategy = [], tf.distribute.MirroredStrategy(["/cpu:0"])
    assert in_loop(look)[0]
    assert made == ["inside"]


@checks("make_multi_worker_mirrored")
def a_strategy_has_as_many_devices_as_asked_for():
    with tf.Graph().as_default():
        extended = multi_worker(num_devices=2, number=3).extended
        assert len(extended.worker_devices) == 2
        assert all("CPU" in device for device in extended.worker_devices)
        assert extended._collective_keys._group_key >= 3000


@checks("number_collectives")
def workers_agree_on_the_next_collective_whatever_they_built_before():
    def build(num_reductions):
        def reduce():
            for _ in range(num_reductions):
                tf.distribute.get_replica_context().all_reduce("SUM", tf.ones([2]))

        with tf.Graph().as_default() as graph, strategy.scope():
            V1.get_variable("local", [2], collections=["local_variables"])
            strategy.extended.call_for_each_replica(reduce)
        ops = graph.get_operations()
        sums = [op.inputs[3] for op in ops if op.type == "CollectiveReduceV2"]
        sends = [op for op in ops if op.type == "CollectiveBcastSend"]
        keys = [op.get_attr("instance_key") for op in sends]
        return [*keys, *map(tf.get_static_value, sums)]

    with tf.Graph().as_default():
        strategy = multi_worker(num_devices=2)
    _tf.number_collectives(strategy, 1000)  # Before this worker has built anything.
    first = build(1)
    assert len(first) == 3
    assert min(first) >= 1000
    for num_before in (1, 3):
        assert build(num_before) != first
        _tf.number_collectives(strategy, 1000)
        assert build(1) == first


@checks("initializers_without_broadcast")
def only_local_variables_are_initialized_by_a_broadcast():
    with tf.Graph().as_default() as graph:
        strategy = multi_worker(num_devices=2)
    with graph.as_default(), _tf.initializers_without_broadcast(strategy), strategy.scope():
        V1.get_variable("global", [2])
        assert not any(op.type.startswith("Collective") for op in graph.get_operations())
        V1.get_variable("local", [2], collections=["local_variables"])
        sends = [op for op in graph.get_operations() if op.type.startswith("CollectiveBcastSend")]
        assert len(sends) == 1


@checks("is_for_workers")
def a_strategy_for_workers_is_known():
    with tf.Graph().as_default():
        assert _tf.is_for_workers(multi_worker())
        assert not _tf.is_for_workers(mirrored())


@checks("is_multi_worker")
def a_strategy_of_several_workers_is_known():
    with tf.Graph().as_default():
        assert _tf.is_multi_worker(multi_worker())
        assert not _tf.is_multi_worker(mirrored())


@checks("has_started_server")
def a_strategy_that_is_made_in_a_graph_starts_no_server():
    with tf.Graph().as_default():
        strategy = multi_worker()
        assert not _tf.has_started_server(strategy)
        strategy.extended._std_server_started = True
        assert _tf.has_started_server(strategy)


@checks("make_parameter_server")
def variables_are_where_they_are_placed():
    with tf.Graph().as_default():
        devices = [f"/job:worker/replica:0/task:0/device:CPU:{i}" for i in range(2)]
        place = "/job:ps/task:0"
        strategy = _tf.make_parameter_server(cluster("ps"), devices, lambda op: place)
        assert strategy.num_replicas_in_sync == 2
        with strategy.scope():
            assert "/job:ps" in tf.Variable(1.0).device


@checks("piggyback_slots")
def a_vector_goes_along_with_the_gradients():
    def reduce():
        replica = tf.distribute.get_replica_context()
        return replica.all_reduce(tf.distribute.ReduceOp.SUM, [tf.ones([3]), tf.ones([2])])

    with tf.Graph().as_default(), multi_worker(num_devices=1).scope():
        with _tf.piggyback_slots(4) as slots:
            sums = tf.distribute.get_strategy().run(reduce)
        (slot,) = slots
        assert slot.total.shape == [4]
        assert slot.entry.inputs[0].shape == [4]
        assert "CollectiveReduceV2" in {op.type for op in slot.total.graph.get_operations()}
        assert [value.shape for value in sums] == [[3], [2]]


@checks("PiggybackSlot")
def a_slot_is_a_tuple():
    assert _tf.PiggybackSlot._fields == ("entry", "reduction", "total")


# --- collectives.py -----------------------------------------------------------------------------


@checks("collectives_in_sessions")
def rows_are_gathered_at_the_next_power_of_two_and_all_replicas_reduce():
    def reduce():
        rows = tf.IndexedSlices(tf.ones([3, 2]), tf.constant([4, 0, 4]), tf.constant([5, 2]))
        values = [rows, tf.constant(1.0), tf.constant(2.0, tf.float64), tf.constant([3.0])]
        return tf.distribute.get_replica_context().all_reduce("SUM", values)

    # Off if the first thing that initialized the eager context of this process was in a graph.
    tf.config.set_soft_device_placement(True)
    eager = mirrored()  # Made in a graph, it would not use collectives on CPUs.
    with tf.Graph().as_default(), multi_worker(num_devices=1).scope():
        with _tf.collectives_in_sessions():
            rows, *sums = tf.distribute.get_strategy().run(reduce)
        assert isinstance(rows, tf.IndexedSlices)
        assert [one.dtype for one in sums] == [tf.float32, tf.float64, tf.float32]
    with tf.Graph().as_default() as graph, V1.Session(config=TWO_CPUS) as session:
        with eager.scope(), _tf.collectives_in_sessions():
            rows, *sums = tf.distribute.get_strategy().run(reduce)
        first = eager.experimental_local_results
        assert isinstance(first(rows)[0], tf.IndexedSlices)
        kinds = [op.type for op in graph.get_operations()]
        # On each replica, of the lengths, the values and the indices; and of each dtype.
        assert kinds.count("CollectiveGatherV2") == 2 * 3
        assert kinds.count("CollectiveReduceV2") == 2 * 2
        assert "If" not in kinds
        # Of the first replica alone.
        assert session.run([first(one)[0] for one in sums]) == [2.0, 4.0, [6.0]]
        assert session.run(first(rows)[0]).indices.tolist() == [4, 0, 4, 4, 0, 4]


# --- gradients.py -------------------------------------------------------------------------------


UPDATES = ("AssignAddVariableOp", "AssignSubVariableOp", "ResourceApplyGradientDescent")


def train_on_two(make_optimizer, reduction="mean"):
    """A variable of 0 after a step of SGD with a rate of 1 and a gradient of -1 on 2 replicas."""

    def step():
        gradient = tf.constant(-1.0)
        with _tf.gradient_reduction(reduction):
            optimizer.apply_gradients([(gradient, variable)])

    with tf.Graph().as_default() as graph, V1.Session(config=TWO_CPUS) as session:
        strategy = mirrored()
        with strategy.scope(), _tf.mean_gradients(strategy), _tf.keras_optimizers_in_graphs():
            variable = tf.Variable(0.0)
            optimizer = make_optimizer()
            if hasattr(optimizer, "build"):
                optimizer.build([variable])
            made = len(graph.get_operations())
            strategy.run(step)
        session.run(V1.global_variables_initializer())
        new = graph.get_operations()[made:]
        # The learning rate of tf-keras is a variable that a step sets.
        session.run([op for op in new if op.type == "AssignVariableOp"])
        session.run([op for op in new if op.type in UPDATES])
        return session.run(list(variable.values))


OPTIMIZERS = (
    lambda: V1.train.GradientDescentOptimizer(1.0),
    lambda: keras.optimizers.SGD(1.0),
    lambda: tf_keras.optimizers.SGD(1.0),
    lambda: tf_keras.optimizers.legacy.SGD(1.0),
)


@checks("mean_gradients")
def gradients_are_averaged_over_replicas():
    for make in OPTIMIZERS:
        assert train_on_two(make) == [1, 1]


@checks("gradient_reduction")
def gradients_are_summed_over_replicas_if_asked():
    assert train_on_two(OPTIMIZERS[0], "sum") == [2, 2]
    assert train_on_two(OPTIMIZERS[1], "sum") == [2, 2]


@checks("keras_loss_reductions_noted")
@checks("last_loss_is_sum")
def a_graph_keeps_the_reduction_of_its_last_loss():
    keras_loss = tf.keras.losses.MeanSquaredError
    with tf.Graph().as_default() as graph, _tf.keras_loss_reductions_noted():
        assert not _tf.last_loss_is_sum(graph)
        V1.losses.mean_squared_error([1.0], [1.0], reduction=V1.losses.Reduction.SUM)
        assert _tf.last_loss_is_sum(graph)
        keras_loss()([1.0], [1.0])
        assert not _tf.last_loss_is_sum(graph)
        keras_loss(reduction="sum")([1.0], [1.0])
        assert _tf.last_loss_is_sum(graph)


@checks("scaled")
def a_sparse_gradient_is_scaled():
    with tf.Graph().as_default(), V1.Session() as session:
        sparse = tf.IndexedSlices(tf.ones([1]), tf.constant([0]))
        assert session.run(_tf.scaled(sparse, 0.5).values) == [0.5]
        assert _tf.scaled(None, 0.5) is None


# --- tpu.py -------------------------------------------------------------------------------------


def op_in_program(graph, make):
    """An op that is marked as part of a TPU's program by TensorFlow's own class."""
    from tensorflow.python.tpu import tpu_replication

    context = tpu_replication.TPUReplicateContext("cluster", 1, tf.no_op(name="pivot"))
    context.Enter()
    try:
        return make()
    finally:
        context.Exit()


@checks("TPU_PROGRAM")
def the_attribute_of_a_program_is_as_tensorflow_names_it():
    with tf.Graph().as_default() as graph:
        tensor = op_in_program(graph, lambda: tf.add(1, 2))
        assert _tf.TPU_PROGRAM in tensor.op.node_def.attr


@checks("is_in_tpu_program")
def an_op_of_a_program_is_told_from_others():
    with tf.Graph().as_default() as graph:
        assert _tf.is_in_tpu_program(op_in_program(graph, lambda: tf.add(1, 2)))
        assert not _tf.is_in_tpu_program(tf.add(1, 2))


@checks("free_tpu_handles")
def a_handle_waits_for_nothing():
    with tf.Graph().as_default() as graph:
        variable = tf.Variable(1.0)
        with tf.control_dependencies([tf.no_op()]):
            handle = tf.raw_ops.TPUReplicatedInput(inputs=[variable.handle])
        assert handle.op.control_inputs
        _tf.free_tpu_handles(graph)
        assert not handle.op.control_inputs


@checks("per_replica")
def each_core_gets_its_value():
    with tf.Graph().as_default():
        strategy = make_strategy(2)
        one, two = tf.constant(1), tf.constant(2)
        assert list(_tf.per_replica(strategy, [one, two]).values) == [one, two]


@checks("tpu_resolver")
def a_strategy_has_its_resolver():
    for kind in (tf.distribute.TPUStrategy, V1.distribute.experimental.TPUStrategy):
        assert isinstance(_tf.tpu_resolver(make_strategy(2, kind)), DescribedTPU)


@checks("tpu_name")
def a_resolver_has_a_name():
    assert _tf.tpu_name(DescribedTPU(1)) == "local"


def noted_tpu(check):
    """Calls a check after a TPU is noted as initialized, and forgets that."""
    from tensorflow.python.tpu import tpu_strategy_util

    topology = tf.tpu.experimental.Topology(
        mesh_shape=[1, 1, 1, 1], device_coordinates=[[[0, 0, 0, 0]]]
    )
    with mock.patch.dict(tpu_strategy_util._INITIALIZED_TPU_SYSTEMS, clear=True):
        resolver = DescribedTPU(1)
        before = _tf.is_initialized_tpu(resolver)
        _tf.note_initialized_tpu(resolver, topology.serialized())
        check(before, resolver)


@checks("note_initialized_tpu")
def tensorflow_knows_of_an_initialized_tpu():
    from tensorflow.python.tpu import tpu_strategy_util

    noted_tpu(
        lambda before, resolver: tpu_strategy_util.get_initialized_tpu_systems()[resolver._tpu]
    )


@checks("is_initialized_tpu")
def an_initialized_tpu_is_known():
    answers = []
    noted_tpu(lambda before, tpu: answers.extend([before, _tf.is_initialized_tpu(tpu)]))
    assert answers == [False, True]


@checks("compilable_ops")
def xla_lists_what_it_compiles():
    ops = _tf.compilable_ops()
    assert {"MatMul", "ResourceApplyGradientDescent"} <= ops
    assert "PyFunc" not in ops
