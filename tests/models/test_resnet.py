import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

import estimator as est
from input_pipelines import mnist, tfrecord
from models import resnet
from tests.toy import scalars

V1 = tf.compat.v1
SMALL = {"width": 8, "learning_rate": 0.2, "warmup_steps": 40, "train_steps": 200}
# Of the 1,000 test digits; the CNN of `mnist_cnn.py` has 0.98 after 2,000 steps.
LOWEST_ACCURACY = 0.93


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    return str(tmp_path_factory.mktemp("datasets"))


def make_classifier(model_dir, params, loop_steps, **options):
    config = est.tpu.RunConfig(
        model_dir=str(model_dir),
        tf_random_seed=1,
        save_summary_steps=100,
        tpu_config=est.tpu.TPUConfig(iterations_per_loop=loop_steps),
        **options,
    )
    return est.tpu.TPUEstimator(
        resnet.model_fn, config=config, params=params, train_batch_size=64, eval_batch_size=200
    )


@pytest.mark.full
@pytest.mark.slow
def test_200_steps_from_tfrecords_learn_the_digits(tmp_path, data_dir):
    builder = mnist.prepare("mnist_5k", data_dir)
    examples = tfds.as_numpy(mnist.read_examples(builder, "train"))
    (path,) = tfrecord.write_examples(examples, str(tmp_path / "train.tfrecord"))
    params = {**SMALL, "summary_dir": str(tmp_path / "host")}
    with make_classifier(tmp_path, params, loop_steps=100) as classifier:
        classifier.train(tfrecord.make_input_fn(path, training=True, seed=1), max_steps=200)
        metrics = classifier.evaluate(mnist.make_input_fn("mnist_5k", "test", data_dir=data_dir))
    assert metrics["accuracy"] > LOWEST_ACCURACY
    rates = scalars(tmp_path / "host", "learning_rate")
    fallen = 0.2 * 0.5 * (1 + np.cos(np.pi * (100 - 40) / (200 - 40)))
    assert rates == pytest.approx({0: 0.2 / 40, 100: fallen})


def digits(params):
    random = np.random.default_rng(0)
    images = random.normal(size=[8, 12, 12, 1]).astype(np.float32)
    data = tf.data.Dataset.from_tensors(({"image": images}, np.arange(8, dtype=np.int32)))
    return data.unbatch().repeat().batch(params["batch_size"])


def test_replicas_train_it_too(tmp_path):
    params = {"width": 2}
    options = {"strategy": "mirrored", "num_replicas": 2}
    with make_classifier(tmp_path, params, loop_steps=2, **options) as classifier:
        classifier.train(digits, steps=2)
        average = classifier.get_variable_value("stem_norm/moving_variance")
    assert (average != 1.0).all()


@pytest.mark.parametrize(("depth", "count"), [(18, 11_689_512), (50, 25_557_032)])
def test_it_has_as_many_parameters_as_the_usual_ones_for_imagenet(depth, count):
    params = {**resnet.DEFAULTS, "depth": depth, "num_classes": 1000}
    with tf.Graph().as_default() as graph:
        logits = resnet.build_logits(tf.zeros([1, 224, 224, 3]), params, is_training=True)
        sizes = [int(np.prod(v.shape)) for v in V1.trainable_variables()]
        last = graph.get_operations()[::-1]
        images = next(op.outputs[0] for op in last if op.type == "Relu")
    assert sum(sizes) == count
    assert logits.shape == [1, 1000]
    assert images.shape[1:3] == [7, 7]


def test_a_depth_without_blocks_is_refused():
    message = r"`params\[\"depth\"\]` \(34\) must be 18 or 50\. .* `resnet\.BLOCKS`"
    with tf.Graph().as_default(), pytest.raises(ValueError, match=message):
        resnet.model_fn({"image": tf.zeros([1, 8, 8, 1])}, None, "infer", {"depth": 34})


def test_the_3x3_convolution_of_a_bottleneck_halves_the_image():
    """That is what v1.5 changed; it was the 1x1 before."""
    params = {**resnet.DEFAULTS, "depth": 50, "width": 4}
    with tf.Graph().as_default() as graph:
        resnet.build_logits(tf.zeros([1, 32, 32, 3]), params, is_training=False)
        halving = {
            tuple(op.inputs[1].shape[:2])
            for op in graph.get_operations()
            if op.type == "Conv2D" and op.get_attr("strides")[1] == 2 and op.inputs[1].shape[2] < 64
            # The shortcut is 1x1, and has to halve, too; it is the one with four times the outputs.
            if op.inputs[1].shape[3] != 2 * op.inputs[1].shape[2]
        }
    assert halving == {(3, 3)}


def test_evaluation_does_not_depend_on_the_batch_around_an_image():
    with tf.Graph().as_default(), V1.Session() as session:
        images = V1.placeholder(tf.float32, [None, 12, 12, 1])
        params = {**resnet.DEFAULTS, "width": 4}
        logits = resnet.build_logits(images, params, is_training=False)
        session.run(V1.global_variables_initializer())
        pixels = np.random.default_rng(0).normal(size=[6, 12, 12, 1])
        together = session.run(logits, {images: pixels})
        alone = session.run(logits, {images: pixels[:1]})
    np.testing.assert_allclose(alone, together[:1], rtol=1e-4, atol=1e-6)
