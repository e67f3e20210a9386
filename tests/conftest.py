"""What all tests share."""

import gc
import signal
import tempfile

import pytest

from tests import pairwise, schedule

# Rooms, and files of the tables, whose tests run a small graph for a few steps, where optimizing
# the graph is a third of the work. All others optimize as users do, among them the tables of loop
# sizes, seeds and layers, the random programs, and whatever starts processes; `make test-full`
# optimizes everywhere. A file with the global name OPTIMIZES_GRAPHS does, too.
NOT_OPTIMIZED = {
    *("bad_input", "canned", "checkpoint", "contract", "estimators", "evaluation", "export"),
    *("heads", "hooks", "input", "model", "roles", "session", "summary", "training"),
    *("conformance/test_metrics.py", "conformance/test_pipelines.py"),
    *("conformance/test_accumulate.py", "conformance/test_keras_optimizers.py"),
    *("conformance/test_old_optimizers.py", "conformance/test_optimizers.py"),
    *("conformance/test_scaffold.py", "conformance/test_keras_losses.py"),
    *("keras/test_keras_estimator.py", "keras/test_tf_keras_models.py"),
    *("program/test_fixed_shape.py", "program/test_step_summaries.py"),
    "program/test_tpu_replicas.py",
}


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Marks what the default run leaves out, and orders the rest.

    Of a test marked `pairwise` or `each_value`, the default run has a selection of its cases.
    """
    for item in pairwise.rest(items):
        item.add_marker(pytest.mark.full)
    yield
    if hasattr(config, "workerinput"):  # Of a process that pytest-xdist started.
        is_slow = [item.get_closest_marker("slow") is not None for item in items]
        num_processes = config.workerinput["workercount"]
        places = schedule.order([item.path for item in items], is_slow, num_processes)
        items[:] = [items[place] for place in places]


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Imports without garbage collection, and excludes what was imported from later ones.

    TensorFlow and the tests are a million objects that stay alive. To look through them while they
    are made is 40% of the time that this takes. Tests of leaks call `gc.collect` many times, and
    each call would spend a second on these objects alone.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True, scope="module")
def _graph_optimizer(request):
    """Has sessions run graphs as they were built, in the rooms where this only saves time."""
    path = request.path.relative_to(request.config.rootpath / "tests")
    is_listed = not NOT_OPTIMIZED.isdisjoint((path.parts[0], path.as_posix()))
    is_exception = hasattr(request.module, "OPTIMIZES_GRAPHS")
    if not is_listed or is_exception or pairwise.is_full(request.config):
        yield
        return
    import tensorflow as tf

    session = tf.compat.v1.Session
    make = session.__init__

    def make_not_optimizing(self, target="", graph=None, config=None):
        copied = tf.compat.v1.ConfigProto()
        copied.MergeFrom(config or tf.compat.v1.ConfigProto())
        copied.graph_options.rewrite_options.disable_meta_optimizer = True
        make(self, target, graph, copied)

    session.__init__ = make_not_optimizing
    yield
    session.__init__ = make


@pytest.fixture(autouse=True, scope="module")
def _no_global_seed():
    """Removes the global seed that tests set, as `keras.utils.set_random_seed` does."""
    yield
    import tensorflow as tf

    tf.random.set_seed(None)


@pytest.fixture(autouse=True, scope="session")
def _temporary_files(tmp_path_factory):
    """Has what programs leave in the temporary directory removed with the tests' own files."""
    with pytest.MonkeyPatch.context() as patch:
        directory = str(tmp_path_factory.mktemp("t"))
        patch.setenv("TMPDIR", directory)
        patch.setattr(tempfile, "tempdir", directory)
        yield


@pytest.fixture(autouse=True, scope="session")
def _interrupts():
    """Has SIGINT interrupt as in a terminal; a process in a shell's background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True, scope="session")
def _stack_room():
    """Has tests and fixtures run at the same speed at any depth of Python's stack."""
    from estimator.program.stack_room import with_stack_room

    with_stack_room(pytest.Function.runtest)
    with_stack_room(pytest.FixtureDef.execute)


@pytest.fixture(autouse=True, scope="session")
def _no_warm_up():
    """Without the first session that a process makes besides those that tests expect."""
    from estimator.session import warm_up

    next(warm_up._CALLS)


@pytest.fixture
def v1_control_flow():
    """As after `tf.compat.v1.disable_v2_behavior()`: a cond is built of Switch and Merge."""
    import tensorflow as tf

    tf.compat.v1.disable_control_flow_v2()
    yield
    tf.compat.v1.enable_control_flow_v2()


@pytest.fixture
def v1_shapes():
    """As after `tf.compat.v1.disable_v2_behavior()`: a dimension is an object, never None."""
    import tensorflow as tf

    tf.compat.v1.disable_v2_tensorshape()
    yield
    tf.compat.v1.enable_v2_tensorshape()


@pytest.fixture(params=["v1", "v2"])
def control_flow(request):
    """Both ways in which TensorFlow builds branches and loops."""
    if request.param == "v1":
        request.getfixturevalue("v1_control_flow")
