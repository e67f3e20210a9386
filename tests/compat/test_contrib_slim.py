"""`tf.contrib` with tf-slim: one `arg_scope` for its layers and ours, also on several replicas."""

import concurrent.futures
import functools
import subprocess
import sys
import threading

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from estimator.compat.contrib import make_contrib
from tests.compat.in_session import run
from tests.forked import LIMIT_SECS, ROOT

V1 = tf.compat.v1
pytestmark = pytest.mark.usefixtures("graph")


@pytest.fixture(scope="module")
def contrib():
    """`tf.contrib` with tf-slim, which needs names that `install` supplies."""
    est.install()
    yield make_contrib(has_slim=True)
    est.uninstall()


@pytest.mark.parametrize("package", ["layers", "slim"])
@pytest.mark.parametrize("named", ["layers", "slim"])
def test_a_layer_by_either_name_takes_what_an_arg_scope_gives(contrib, package, named):
    scoped = [getattr(getattr(contrib, named), name) for name in ("fully_connected", "max_pool2d")]
    layers, x = getattr(contrib, package), np.ones([2, 3], np.float32)
    ones, l2 = V1.ones_initializer(), contrib.layers.l2_regularizer(2.0)
    with contrib.framework.arg_scope(scoped, scope="s"):
        with contrib.slim.arg_scope(scoped[:1], weights_initializer=ones, weights_regularizer=l2):
            y = layers.fully_connected(x, 4, activation_fn=None)
        assert layers.max_pool2d(np.zeros([1, 4, 4, 1]), 2).op.name.startswith("s")
    z = layers.linear(x, 4, scope="z")
    found, loss, _ = run(y, V1.losses.get_regularization_loss(), z)
    np.testing.assert_allclose(found, np.full([2, 4], 3.0))
    assert loss == pytest.approx(12.0)
    assert [v.op.name for v in V1.global_variables()][:2] == ["s/weights", "s/biases"]


@pytest.mark.parametrize("package", ["layers", "slim"])
def test_a_linear_layer_has_no_activation_whatever_the_scope_gives(contrib, package):
    layers = getattr(contrib, package)
    with contrib.slim.arg_scope([layers.fully_connected], activation_fn=tf.nn.relu):
        y = layers.linear(
            -np.ones([1, 2], np.float32), 3, weights_initializer=V1.ones_initializer()
        )
    np.testing.assert_array_equal(run(y)[0], [[-2.0, -2.0, -2.0]])


@pytest.mark.parametrize("package", ["layers", "slim"])
def test_the_end_points_of_a_network_have_the_names_of_its_scopes(contrib, package):
    layers, slim = getattr(contrib, package), contrib.slim
    names = ("conv2d", "max_pool2d", "dropout", "flatten", "fully_connected", "layer_norm")
    scoped = [getattr(layers, name) for name in names]
    with V1.variable_scope("net"), slim.arg_scope(scoped, outputs_collections="ends"):
        x = layers.conv2d(tf.zeros([2, 8, 8, 3]), 4, 3, scope="c")
        x = slim.repeat(x, 2, layers.max_pool2d, 2)
        x = layers.flatten(layers.dropout(x, scope="d"), scope="f")
        layers.layer_norm(layers.fully_connected(x, 5, scope="fc"), scope="n")
    # slim's `repeat` names the scopes after the function.
    pools = [f"net/Repeat/max_pool2d_{i}" for i in (1, 2)]
    expected = ["net/c", *pools, "net/d", "net/f", "net/fc", "net/n"]
    ends = contrib.layers.utils.convert_collection_to_dict("ends")
    assert [*ends] == expected


def test_names_of_tf_slim_are_found_on_the_old_paths(contrib):
    for path in (
        "slim.python.slim.data.tfexample_decoder.TFExampleDecoder",
        "slim.python.slim.nets.resnet_v1.resnet_v1_50",
        "slim.nets.vgg.vgg_16",
        "slim.learning.train",
        "framework.python.ops.add_arg_scope",
        "framework.model_variable",
        "layers.python.layers.utils.collect_named_outputs",
        "layers.group_norm",
        "layers.summarize_collection",
        "losses.python.losses.loss_ops.absolute_difference",
        "metrics.streaming_concat",
        "training.create_train_op",
        "training.evaluate_once",
    ):
        assert callable(functools.reduce(getattr, path.split("."), contrib)), path
    # Ours, where both have one.
    assert contrib.layers.optimize_loss.__module__.startswith("estimator.")
    with pytest.raises(
        AttributeError, match=r"layers.conv2 is not provided .* Did you mean 'conv2"
    ):
        _ = contrib.layers.conv2
    with pytest.raises(AttributeError, match=r"slim.conv2 is not provided .* Did you mean 'conv2"):
        _ = contrib.slim.conv2


def test_other_packages_do_not_import_tf_slim():
    program = (
        "import sys\n"
        "from estimator.compat.contrib import make_contrib\n"
        "assert make_contrib(has_slim=True).tpu.TPUEstimator\n"
        "assert 'tf_slim' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=LIMIT_SECS)


def test_a_thread_has_the_scope_of_the_first_one_and_changes_its_own(contrib):
    slim, inside = contrib.slim, []

    def enter():
        inside.append(slim.current_arg_scope())
        slim.arg_scope([slim.dropout], keep_prob=0.1).__enter__()

    with slim.arg_scope([slim.conv2d], stride=2) as scope:
        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
        assert inside == [scope]
        assert slim.current_arg_scope() == scope
    assert slim.current_arg_scope() == {}


def test_a_thread_that_is_used_again_does_not_keep_a_scope(contrib):
    slim = contrib.slim
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        with slim.arg_scope([slim.conv2d], stride=2) as scope:
            assert pool.submit(slim.current_arg_scope).result() == scope
        assert pool.submit(slim.current_arg_scope).result() == {}


def test_replicas_that_take_turns_inside_a_scope_keep_it(contrib, tmp_path):
    slim = contrib.slim

    def model_fn(features, labels, mode):
        with slim.arg_scope([slim.fully_connected], normalizer_fn=slim.batch_norm):
            # The moving averages let the other replica go on before this one has left the scope.
            norm = {"updates_collections": None}
            hidden = slim.fully_connected(features, 3, normalizer_params=norm)
            hidden = slim.fully_connected(hidden, 3, normalizer_params=norm)
        loss = tf.reduce_mean((slim.fully_connected(hidden, 1, scope="last") - labels) ** 2)
        optimizer = V1.train.GradientDescentOptimizer(0.1)
        op = optimizer.minimize(loss, V1.train.get_global_step())
        return est.EstimatorSpec(mode, loss=loss, train_op=op)

    def input_fn():
        data = tf.data.Dataset.from_tensors((tf.ones([8, 2]), tf.ones([8, 1])))
        return data.repeat(6)

    config = est.RunConfig(strategy="mirrored", num_replicas=2)
    with est.Estimator(model_fn, str(tmp_path), config) as model:
        model.train(input_fn, steps=2)
        names = model.get_variable_names()
    assert "last/biases" in names
    assert "last/BatchNorm/beta" not in names
    assert "fully_connected_1/BatchNorm/moving_mean" in names
