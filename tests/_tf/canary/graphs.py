"""Checks of `_tf`: graphs, variables' uses, random ops, datasets."""

import keras
import tensorflow as tf

from estimator import _tf
from tests._tf.canary.rows import V1, called_by_keras, checks, in_loop

# --- graph.py -----------------------------------------------------------------------------------


def op_types(graph):
    return {op.type for op in graph.get_operations()}


@checks("while_loop")
def a_loop_is_one_op_without_v2_control_flow():
    V1.disable_control_flow_v2()
    try:
        _, graph = in_loop(lambda count: None)
    finally:
        V1.enable_control_flow_v2()
    assert "StatelessWhile" in op_types(graph)


@checks("cond")
def a_cond_is_one_op_without_v2_control_flow():
    V1.disable_control_flow_v2()
    try:
        with tf.Graph().as_default() as graph, V1.Session() as session:
            one, two = tf.constant(1), tf.constant(2)
            value = _tf.cond(one > two, lambda: one, lambda: two, "larger")
            assert session.run(value) == 2
    finally:
        V1.enable_control_flow_v2()
    assert "StatelessIf" in op_types(graph)


@checks("after_v1_branches")
def a_wait_for_a_branch_that_is_not_taken_ends():
    V1.disable_control_flow_v2()
    try:
        with tf.Graph().as_default(), V1.Session() as session:
            is_taken, inside = V1.placeholder(tf.bool, []), []

            def note():
                inside.append(tf.random.uniform([]))
                return 0.0

            tf.cond(is_taken, note, lambda: 0.0)
            after = _tf.after_v1_branches(inside[0].op)
            with tf.control_dependencies([after]):
                value = tf.constant(1)
            for taken in (True, False):
                assert session.run(value, {is_taken: taken}) == 1
    finally:
        V1.enable_control_flow_v2()


@checks("is_in_v1_cond")
def an_op_in_a_branch_of_v1_is_told_from_one_outside():
    V1.disable_control_flow_v2()
    try:
        with tf.Graph().as_default():
            inside = []

            def add_one():
                inside.append(tf.constant(1) + 1)
                return inside[0]

            outside = tf.cond(V1.placeholder(tf.bool, []), add_one, lambda: 0)
    finally:
        V1.enable_control_flow_v2()
    assert _tf.is_in_v1_cond(inside[0].op)
    assert not _tf.is_in_v1_cond(outside.op)


@checks("is_in_v1_loop")
def an_op_in_a_loop_of_v1_is_told_from_one_outside():
    V1.disable_control_flow_v2()
    try:
        with tf.Graph().as_default():
            inside = []

            def add_one(i):
                inside.append(i + 1)
                return inside

            outside = tf.add(tf.while_loop(lambda i: i < 3, add_one, [0]), 1)
    finally:
        V1.enable_control_flow_v2()
    assert _tf.is_in_v1_loop(inside[0].op)
    assert not _tf.is_in_v1_loop(outside.op)


@checks("initialized_value")
def a_variable_has_its_initial_value_before_it_is_initialized():
    with tf.Graph().as_default(), V1.Session() as session:
        variable = tf.Variable(1.0)
        value = _tf.initialized_value(variable)
        assert session.run(value) == 1
        session.run(variable.assign(2.0))
        assert session.run(value) == 2


@checks("note_devices")
def a_body_is_placed_as_what_is_around_the_loop():
    with tf.Graph().as_default() as graph, V1.device(lambda op: op.device or "/job:a"):
        devices = _tf.note_devices()
        found = []

        def body(count):
            found.append(tf.constant(1).device)
            with devices():
                found.append(tf.constant(1).device)
                with tf.init_scope():
                    found.append(tf.constant(1).device)
            return count + 1

        with V1.device(lambda op: "/job:b"):
            _tf.while_loop(lambda count: count < 1, body, [tf.constant(0)])
            found.append(tf.constant(1).device)
        assert found == ["/job:b", "/job:a", "/job:a", "/job:b"]
        assert {op.device for op in graph.get_operations() if "While" in op.type} == {"/job:b"}


@checks("set_device")
def an_op_is_moved():
    with tf.Graph().as_default():
        op = tf.constant(1).op
        _tf.set_device(op, "/device:CPU:0")
        assert op.device == "/device:CPU:0"


@checks("copy_op")
def an_op_is_copied_with_other_inputs():
    with tf.Graph().as_default(), V1.Session() as session:
        op = tf.add(1, 2).op
        copy = _tf.copy_op(op, [tf.constant(3), tf.constant(4)])
        assert session.run([op.outputs[0], copy.outputs[0]]) == [3, 7]


@checks("add_control_inputs")
def an_op_that_is_there_is_made_to_wait():
    V1.disable_control_flow_v2()
    try:
        with tf.Graph().as_default() as graph:
            first, second = tf.no_op(), tf.no_op()
            _tf.add_control_inputs(second, [first])
            assert second.control_inputs == [first]
            tf.while_loop(lambda i: i < 3, lambda i: i + 1, [0])
            _tf.add_control_inputs(graph.get_operation_by_name("while/add"), [first])
            assert first in graph.get_operation_by_name("while/Enter").control_inputs
    finally:
        V1.enable_control_flow_v2()


@checks("set_input")
def an_op_gets_another_input():
    with tf.Graph().as_default(), V1.Session() as session:
        total = tf.add(1, 2)
        _tf.set_input(total.op, tf.constant(5))
        assert session.run(total) == 7


@checks("name_resources")
def two_ops_make_one_queue():
    with tf.Graph().as_default(), V1.Session() as session:
        queue = V1.PaddingFIFOQueue(3, tf.float32, [[]])
        _tf.name_resources([queue.queue_ref.op])
        copy = _tf.copy_op(queue.queue_ref.op, [])
        session.run(queue.enqueue(1.0))
        assert session.run(tf.raw_ops.QueueSizeV2(handle=copy.outputs[0])) == 1


@checks("is_ref")
def a_v1_variable_is_a_reference():
    with tf.Graph().as_default():
        variable = V1.Variable(1.0, use_resource=False)
        assert _tf.is_ref(variable.op.outputs[0])
        assert not _tf.is_ref(tf.constant(1.0))


@checks("is_loop_body")
def the_body_of_a_loop_is_told_from_a_graph():
    is_body, graph = in_loop(lambda count: _tf.is_loop_body(count.graph))
    assert is_body
    assert not _tf.is_loop_body(graph)


@checks("outer_graphs")
def a_body_knows_the_graph_around_it():
    (_, around), graph = in_loop(lambda count: _tf.outer_graphs(count.graph))
    assert around is graph


@checks("can_be_read_in")
def what_is_inside_cannot_be_read_outside():
    def look(count):
        body, graph = _tf.outer_graphs(count.graph)
        outer = graph.get_operations()[0].outputs[0]
        return _tf.can_be_read_in(body, outer), _tf.can_be_read_in(graph, count)

    assert in_loop(look)[0] == (True, False)


@checks("capture_source")
def a_captured_tensor_leads_to_the_one_outside():
    def capture(count):
        outer = _tf.outer_graphs(count.graph)[-1].get_operations()[0].outputs[0]
        inner = tf.identity(outer).op.inputs[0]
        assert inner.graph is count.graph
        return _tf.capture_source(inner) is outer

    assert in_loop(capture)[0]


@checks("foreign_captures")
def a_body_may_only_capture_what_is_around_it():
    with tf.Graph().as_default():
        elsewhere = tf.constant(1.0)
    eager = tf.constant([1.0] * 1000)
    with tf.Graph().as_default():
        around = tf.constant(1.0)

        def found_in_body_of(value):
            def body():
                tf.identity(value)
                found.append(_tf.foreign_captures(V1.get_default_graph()))

            found = []
            tf.function(body).get_concrete_function()
            return found[-1]

        assert found_in_body_of(around) == []
        for foreign in (elsewhere, eager):
            assert [id(one) for one in found_in_body_of(foreign)] == [id(foreign)]


def wait_in_body(count):
    """Makes an op in the body that waits for one around it, which is returned, too."""
    outer = _tf.outer_graphs(count.graph)[-1].get_operations()[0]
    with tf.control_dependencies([outer]):
        return tf.identity(count).op, outer


@checks("names_in_use")
def a_graph_knows_the_names_of_its_ops_and_scopes():
    with tf.Graph().as_default() as graph, tf.name_scope("A"):
        tf.constant([1, 1], name="b")
        tf.constant([2, 2], name="b")
    assert set(_tf.names_in_use(graph)) == {"a", "a/b", "a/b_1"}


@checks("take_names")
def a_graph_takes_the_names_of_another():
    with tf.Graph().as_default() as graph:
        _tf.take_names(graph, {"a": 1, "a/b": 1})
        assert tf.constant(1, name="a/b").op.name == "a/b_1"
        with tf.name_scope("A") as scope:
            assert scope == "A_1/"


@checks("names_shared")
def an_op_of_a_body_has_the_name_that_it_would_have_around_the_loop():
    def name(count):
        with _tf.names_shared(count.graph):
            with tf.init_scope():
                outer = tf.constant(0, name="w")
            return [tf.identity(t, "w").op.name for t in (outer, count)]

    assert in_loop(name)[0] == ["w_1", "w_2"]


@checks("noting_waits")
def what_an_op_of_a_body_waits_for_is_noted():
    def note(count):
        with _tf.noting_waits(count.graph) as waits:
            inner, outer = wait_in_body(count)
        return waits[inner] == [outer]

    assert in_loop(note)[0]


@checks("forget_waits")
def a_loop_does_not_wait_for_what_is_forgotten():
    def forget(count):
        _, outer = wait_in_body(count)
        before = len(count.graph.function_captures.control)
        _tf.forget_waits(count.graph, [outer])
        return before, len(count.graph.function_captures.control)

    assert in_loop(forget)[0] == (1, 0)


@checks("hashable_tensors")
def a_tensor_of_a_body_is_a_key():
    def look_up(count):
        with _tf.hashable_tensors():
            return {count: "found"}[count]

    assert in_loop(look_up)[0] == "found"


# --- variable_use.py ----------------------------------------------------------------------------


def make_write():
    variable = tf.Variable(1.0)
    return variable, variable.assign_add(1.0, read_value=False)


@checks("written_resources")
def an_assignment_writes_its_variable():
    with tf.Graph().as_default():
        variable, write = make_write()
        assert [handle.ref() for handle in _tf.written_resources(write)] == [variable.handle.ref()]
        assert _tf.written_resources(variable.read_value().op.inputs[0].op) == []


@checks("written_handles")
def an_assignment_inside_a_branch_writes_its_variable():
    with tf.Graph().as_default() as graph:
        variable = tf.Variable(1.0)
        _tf.cond(
            tf.constant(True),
            lambda: variable.assign_add(1.0).read_value(),
            variable.read_value,
            "branch",
        )
        (branch,) = (op for op in graph.get_operations() if op.type == "If")
        assert [h.ref() for h in _tf.written_handles(branch)] == [variable.handle.ref()]


@checks("variable_source")
def a_handle_in_a_body_leads_to_the_variable():
    with tf.Graph().as_default():
        variable = tf.Variable(1.0)
        sources = []

        def body(count):
            with tf.control_dependencies([variable.assign_add(1.0)]):
                (write,) = (
                    op for op in count.graph.get_operations() if op.type == "AssignAddVariableOp"
                )
            sources.append(_tf.variable_source(write.inputs[0]))
            return count + 1

        _tf.while_loop(lambda count: count < 1, body, [tf.constant(0)])
        assert sources[0] is variable.handle


@checks("is_stateful")
def a_random_op_is_stateful_and_a_sum_is_not():
    assert _tf.is_stateful("RandomUniform")
    assert _tf.is_stateful("the name of a function")
    assert not _tf.is_stateful("AddV2")


@checks("runs_a_function")
def a_loop_runs_a_function_and_a_sum_does_not():
    _, graph = in_loop(lambda count: None)
    found = {op.type for op in graph.get_operations() if _tf.runs_a_function(op)}
    assert found == {"StatelessWhile"}


@checks("ops_inside")
def the_ops_inside_a_call_are_those_of_all_functions():
    with tf.Graph().as_default():
        variable = tf.Variable(0.0)

        @tf.function(autograph=False)
        def outer():
            return tf.cond(variable > 0, lambda: variable.assign(1.0), lambda: 2.0 * variable)

        call = outer().op
        while not _tf.runs_a_function(call):
            call = call.inputs[0].op
        kinds = {op.type for op in _tf.ops_inside(call)}
        assert {"If", "AssignVariableOp", "Mul"} <= kinds
        assert _tf.ops_inside(variable.op) == []


@checks("ends_of")
def the_end_of_a_call_comes_after_what_it_assigns():
    with tf.Graph().as_default(), V1.Session() as session:
        variable = tf.Variable(0.0)

        @tf.function(autograph=False)
        def slow():
            with tf.control_dependencies([tf.linalg.inv(tf.eye(300))]):
                variable.assign(1.0)
            return tf.constant(2.0)

        slow()
        (call,) = (
            op for op in tf.compat.v1.get_default_graph().get_operations() if "Call" in op.type
        )
        with tf.control_dependencies(_tf.ends_of(call)):
            value = variable.read_value()
        session.run(variable.initializer)
        assert session.run(value) == 1
        assert _tf.ends_of(value.op) == [value.op]


@checks("branches_noted")
def the_graphs_of_branches_are_noted():
    noted = []
    with tf.Graph().as_default(), _tf.branches_noted(noted.append):
        tf.cond(tf.constant(True), lambda: 1, lambda: 2)
    assert len(noted) == 2
    assert all(hasattr(graph, "control_outputs") for graph in noted)


@checks("keras_control_flow_v2")
def a_cond_of_keras_is_one_op_without_v2_control_flow():
    V1.disable_control_flow_v2()
    try:
        with tf.Graph().as_default() as graph, _tf.keras_control_flow_v2():
            yes = tf.constant(True)
            called_by_keras("cond(yes, lambda: 1, lambda: 2)", cond=tf.cond, yes=yes)
    finally:
        V1.enable_control_flow_v2()
    assert "Switch" not in op_types(graph)


@checks("name_scopes_in_branches")
def branches_in_a_loop_keep_name_scopes_without_v2_control_flow():
    scopes = []

    def note():
        scopes.append(tf.get_current_name_scope())
        return 1

    def body(count):
        with _tf.name_scopes_in_branches(), tf.name_scope("outer"):
            inner = {"true_fn": note, "false_fn": lambda: 0, "name": "second"}
            return tf.cond(count > 5, lambda: tf.cond(count > 6, **inner), lambda: 0, "first")

    V1.disable_control_flow_v2()
    try:
        in_loop(body)
    finally:
        V1.enable_control_flow_v2()
    assert scopes == ["outer/first/second"]


# --- random.py ----------------------------------------------------------------------------------


@checks("swap_seed_counter")
def a_graph_counts_the_seeds_that_it_gives():
    with tf.Graph().as_default() as graph:
        tf.random.set_seed(1)
        assert _tf.swap_seed_counter(graph, 3) == 0
        tf.random.uniform([])
        assert _tf.swap_seed_counter(graph, 0) == 4


@checks("random_ops_replaced")
def a_public_random_function_calls_one_that_is_replaced():
    def draw(name, original, shape, *args, **kwargs):
        return tf.fill(shape, 0.5)

    with tf.Graph().as_default(), V1.Session() as session:
        with _tf.random_ops_replaced(draw, ["random_uniform"]):
            number = tf.random.uniform([])
        assert session.run(number) == 0.5


@checks("keras_seeds_replaced")
def the_seed_of_what_keras_draws_is_replaced():
    with tf.Graph().as_default(), V1.Session() as session:
        expected = tf.random.stateless_uniform([2], seed=[7, 7])
        with _tf.keras_seeds_replaced(lambda seed: tf.constant([7, 7])):
            of_keras = keras.random.uniform([2], seed=1)
            own = tf.random.stateless_uniform([2], seed=[1, 1])
        expected, of_keras, own = session.run([expected, of_keras, own])
    assert list(of_keras) == list(expected)
    assert list(own) != list(expected)


@checks("loop_counters")
def the_first_input_of_a_loops_body_is_its_counter():
    def count_turns(count):
        inside = _tf.loop_counters(_tf.outer_graphs(count.graph)[-1])
        return len(inside), inside[0].shape.rank

    (found, rank), graph = in_loop(count_turns)
    assert (found, rank) == (1, 0)
    with graph.as_default():
        assert _tf.loop_counters(graph) == []


# --- data.py ------------------------------------------------------------------------------------


@checks("ops_of_datasets_in")
def what_a_dataset_makes_is_in_the_scope_and_the_rest_is_not():
    with tf.Graph().as_default() as graph, _tf.ops_of_datasets_in("input"):
        tf.data.Dataset.range(3).repeat(2)
        own = tf.constant(1)
    names = [op.name for op in graph.get_operations() if op is not own.op]
    assert own.op.name == "Const"
    assert names
    assert [name for name in names if not name.startswith("input/")] == []


@checks("components_replaced")
def components_of_a_dataset_are_replaced_and_its_structure_stays():
    with tf.Graph().as_default():
        with _tf.components_replaced(lambda component: tf.constant(component) + 1):
            dataset = V1.data.Dataset.from_tensor_slices({"a": ([1, 2], [3.0, 4.0])})
            single = tf.data.Dataset.from_tensors([7, 8])
        after = tf.data.Dataset.from_tensors([7, 8])
        pairs = [V1.data.make_one_shot_iterator(d).get_next() for d in (dataset, single, after)]
        with V1.Session() as session:
            first, ours, plain = session.run(pairs)
    assert first == {"a": (2, 4.0)}
    assert (list(ours), list(plain)) == ([8, 9], [7, 8])


@checks("map_in_line")
def a_map_runs_on_the_thread_that_asks():
    with tf.Graph().as_default() as graph, V1.Session() as session:
        dataset = _tf.map_in_line(tf.data.Dataset.range(3), lambda number: number * 2)
        iterator = V1.data.make_initializable_iterator(dataset)
        session.run(iterator.initializer)
        assert session.run(iterator.get_next()) == 0
        (op,) = (op for op in graph.get_operations() if op.type == "MapDataset")
        assert op.get_attr("use_inter_op_parallelism") is False


@checks("is_column")
def a_numeric_column_is_a_column():
    assert _tf.is_column(tf.feature_column.numeric_column("x"))
    assert not _tf.is_column("x")


@checks("is_categorical")
def a_bucketized_column_is_dense_and_categorical():
    age = tf.feature_column.numeric_column("age")
    buckets = tf.feature_column.bucketized_column(age, [3.0])
    assert [_tf.is_categorical(c) for c in (age, buckets)] == [False, True]
    assert _tf.is_dense(buckets)


@checks("is_dense")
def a_column_of_categories_is_not_dense():
    ids = tf.feature_column.categorical_column_with_identity("id", 3)
    assert not _tf.is_dense(ids)
    assert _tf.is_dense(tf.feature_column.indicator_column(ids))


@checks("is_embedding")
@checks("is_sequence")
@checks("identity_column")
@checks("scope_name")
def columns_tell_what_they_wrap():
    columns = tf.feature_column
    ids = columns.categorical_column_with_identity("a/b c", 3)
    weighted = columns.weighted_categorical_column(ids, "w")
    embedding, indicator = columns.embedding_column(weighted, 2), columns.indicator_column(ids)
    limited = columns.categorical_column_with_identity("id", 3, default_value=0)
    words = columns.sequence_categorical_column_with_hash_bucket("word", 3)
    numbers = columns.sequence_numeric_column("x")
    assert [_tf.is_embedding(c) for c in (embedding, indicator, ids)] == [True, False, False]
    plain = (ids, embedding, indicator, columns.numeric_column("x"))
    sequences = (numbers, words, columns.embedding_column(words, 2))
    assert [_tf.is_sequence(c) for c in (*plain, *sequences)] == [False] * 4 + [True] * 3
    found = [_tf.identity_column(c) for c in (ids, embedding, indicator, limited, numbers)]
    assert found == [ids, ids, None, None, None]
    assert _tf.scope_name(ids) == "a_b_c"
    assert _tf.scope_name(ids, keeps_slashes=True) == "a/b_c"


@checks("as_current_column")
@checks("SharedEmbeddingColumn")
def columns_of_tensorflow_1_share_a_variable():
    ids = [tf.feature_column.categorical_column_with_identity(key, 3) for key in ("b", "a")]
    with tf.Graph().as_default():
        old = V1.feature_column.shared_embedding_columns(ids, 2)
        columns = [_tf.as_current_column(column) for column in old]
        assert [column.name for column in columns] == [column.name for column in old]
        assert all(
            _tf.is_column(c) and _tf.is_dense(c) and not _tf.is_embedding(c) for c in columns
        )
        assert {_tf.scope_name(column) for column in columns} == {"a_b_shared_embedding"}
        given = _tf.ColumnInput({"a": tf.constant([[0]]), "b": tf.constant([[0]])})
        with V1.variable_scope("input", reuse=V1.AUTO_REUSE), V1.Session() as session:
            values = [given.dense(column) for column in columns]
            session.run(V1.global_variables_initializer())
            first, second = session.run(values)
        assert [v.op.name for v in V1.global_variables()] == [
            "input/a_b_shared_embedding/embedding_weights"
        ]
        assert first.tolist() == second.tolist()
    assert _tf.as_current_column(ids[0]) is ids[0]


@checks("ColumnInput")
def columns_give_numbers_and_weighted_sums():
    words = tf.feature_column.categorical_column_with_vocabulary_list("word", ["a", "b"])
    embedding = tf.feature_column.embedding_column(words, 2)
    with tf.Graph().as_default(), V1.Session() as session:
        given = _tf.ColumnInput({"word": tf.constant([["b"], ["?"]])})
        dense, total = given.dense(embedding), given.weighted_sum(words, 3, "sum")
        weights = [v for v in V1.global_variables() if v.op.name == "word/weights"]
        session.run([V1.global_variables_initializer(), V1.tables_initializer()])
        session.run(weights[0].assign([[1, 1, 1], [2, 2, 2]]))
        assert session.run(dense).shape == (2, 2)
        assert session.run(total).tolist() == [[2, 2, 2], [0, 0, 0]]
