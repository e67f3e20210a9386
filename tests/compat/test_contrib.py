"""tf.contrib computes what it did: against NumPy, enumeration, or the functions that it became."""

import functools
import itertools

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from estimator.compat.contrib import contrib
from estimator.compat.contrib.packages import PACKAGES
from tests.compat.in_session import run
from tests.toy import Model, numbers

V1 = tf.compat.v1
pytestmark = pytest.mark.usefixtures("graph")


def test_each_name_of_each_package_has_a_value():
    for package in PACKAGES:
        module = getattr(contrib, package)
        # The cells of tf.contrib.rnn need tf-keras as tf.keras, as the runner has it.
        names = [n for n in module.__all__ if package != "rnn" or n.islower()]
        assert [n for n in names if getattr(module, n) is None] == []
        assert names


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("slim", "tf.contrib.slim is not provided by estimator.compat. Install tf-slim"),
        ("tpo", "tf.contrib.tpo is not provided by estimator.compat. Did you mean 'tpu'?"),
        ("layers.conv2", "tf.contrib.layers.conv2 is not provided .* Did you mean 'conv2d'"),
        ("layers.bow_encoder", "Use `embed_sequence`, then tf.reduce_mean."),
        ("learn.DNNClassifier", "Use tf.estimator.DNNClassifier."),
        ("learn.python.learn.estimators.estimator.x", "estimator is not provided"),
        ("rnn.LSTMCell", "tf.contrib.rnn.LSTMCell needs tf-keras as tf.keras: pip install"),
    ],
)
def test_what_is_not_provided_says_what_replaces_it(path, message):
    with pytest.raises(AttributeError, match=message):
        functools.reduce(getattr, path.split("."), contrib)


# --- Conditional random fields: against all sequences of tags ------------------------------------


def all_scores(scores, transitions, length):
    """The score of each sequence of tags of one example."""
    return {
        tags: sum(scores[i, tag] for i, tag in enumerate(tags))
        + sum(transitions[a, b] for a, b in itertools.pairwise(tags))
        for tags in itertools.product(range(scores.shape[1]), repeat=length)
    }


def test_a_crf_agrees_with_the_enumeration_of_all_tags():
    crf, random = contrib.crf, np.random.default_rng(0)
    scores = random.normal(size=[4, 5, 3]).astype("float32")
    transitions = random.normal(size=[3, 3]).astype("float32")
    tags = random.integers(0, 3, size=[4, 5])
    lengths = np.array([5, 3, 1, 2])
    likelihood, _ = crf.crf_log_likelihood(tf.constant(scores), tags, lengths, transitions)
    decoded = crf.crf_decode(tf.constant(scores), transitions, lengths)
    found, best_tags, best = run(likelihood, *decoded)
    for i, length in enumerate(lengths):
        listed = all_scores(scores[i], transitions, length)
        norm = np.log(np.sum(np.exp(list(listed.values()))))
        assert found[i] == pytest.approx(listed[tuple(tags[i, :length])] - norm, abs=1e-4)
        expected = max(listed, key=listed.get)
        assert tuple(best_tags[i]) == expected + (0,) * (5 - length)
        assert best[i] == pytest.approx(listed[expected], abs=1e-4)
        viterbi, score = crf.viterbi_decode(scores[i, :length], transitions)
        assert (tuple(viterbi), score) == (expected, pytest.approx(best[i], abs=1e-4))


# --- Optimizers, lookups, metrics ----------------------------------------------------------------


def trained(optimizer, *losses_of, num_steps=3):
    """The variable [1, 2, 3] after some steps on each loss."""
    with tf.Graph().as_default(), V1.Session() as session:
        w = V1.get_variable("w", initializer=tf.constant([1.0, 2.0, 3.0]))
        steps = [optimizer.minimize(loss_of(w)) for loss_of in losses_of]
        session.run(V1.global_variables_initializer())
        for step in steps:
            for _ in range(num_steps):
                session.run(step)
        return session.run(w)


def of_rows(*rows):
    """A loss with a sparse gradient."""
    return lambda w: tf.reduce_sum(tf.gather(w, rows) ** 2)


def test_adamw_decays_beside_adam():
    w, m, v = np.array([1.0, 2.0, 3.0]), 0, 0
    for t in range(1, 4):
        w = w * (1 - 0.1)
        # The gradient is taken before the decay.
        g = 2 * w / 0.9
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        w = w - 0.01 * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    found = trained(contrib.opt.AdamWOptimizer(0.1, 0.01), lambda w: tf.reduce_sum(w * w))
    np.testing.assert_allclose(found, w, rtol=1e-5)


@pytest.mark.parametrize("use_resource", [True, False])
def test_weight_decay_of_a_sparse_gradient_is_that_of_its_rows(use_resource):
    optimizer = contrib.opt.extend_with_decoupled_weight_decay(V1.train.GradientDescentOptimizer)
    was = V1.resource_variables_enabled()
    (V1.enable_resource_variables if use_resource else V1.disable_resource_variables)()
    try:
        found = trained(optimizer(0.5, 0.0), of_rows(0, 2, 2), num_steps=1)
    finally:
        (V1.enable_resource_variables if was else V1.disable_resource_variables)()
    assert found.tolist() == [0.5, 2, 1.5]


def test_lazy_adam_leaves_the_moments_of_other_rows():
    def dense(w):
        return tf.reduce_sum(w**2)

    optimizer = contrib.opt.LazyAdamOptimizer(0.1)
    # Plain Adam would go on moving row 1, whose first moment is not 0.
    lazy = trained(optimizer, of_rows(0, 1), of_rows(0, 2), num_steps=1)
    once = trained(V1.train.AdamOptimizer(0.1), dense, num_steps=1)
    twice = trained(V1.train.AdamOptimizer(0.1), dense, num_steps=2)
    np.testing.assert_allclose(lazy[:2], [twice[0], once[1]], rtol=1e-5)


def test_a_moving_average_is_that_of_variables_with_a_gradient():
    w, unused = V1.get_variable("w", []), V1.get_variable("unused", [])
    optimizer = contrib.opt.MovingAverageOptimizer(V1.train.GradientDescentOptimizer(0.25))
    optimizer.apply_gradients([(tf.constant(1.0), w), (None, unused)])
    averages = [v.op.name for v in V1.global_variables() if "Average" in v.op.name]
    assert averages == ["w/ExponentialMovingAverage"]


def test_a_moving_averages_saver_swaps_names(tmp_path):
    w = V1.get_variable("w", initializer=4.0)
    optimizer = contrib.opt.MovingAverageOptimizer(V1.train.GradientDescentOptimizer(0.25), 0.5)
    step = optimizer.minimize(w * w)
    saver = optimizer.swapping_saver()
    with V1.Session() as session:
        session.run(V1.global_variables_initializer())
        session.run(step)
        path = saver.save(session, str(tmp_path / "model"))
    assert contrib.framework.load_variable(path, "w") == 3
    assert contrib.framework.load_variable(path, "w/ExponentialMovingAverage") == 2


def test_lookups_are_both_ways_and_have_buckets(tmp_path):
    (tmp_path / "words").write_text("a\nb\nc\n")
    lookup, path = contrib.lookup, str(tmp_path / "words")
    words = tf.constant(["b", "x"])
    found = run(
        lookup.index_table_from_file(path).lookup(words),
        lookup.index_table_from_tensor(["b", "c"], num_oov_buckets=1).lookup(words),
        lookup.index_to_string_table_from_file(path).lookup(tf.constant([2, 7], tf.int64)),
        lookup.index_to_string_table_from_tensor(["b"], "?").lookup(tf.constant([0, 1], tf.int64)),
    )
    assert [list(x) for x in found] == [[1, -1], [0, 2], [b"c", b"UNK"], [b"b", b"?"]]


def test_metrics_take_predictions_first():
    _, update = contrib.metrics.streaming_accuracy([1, 0, 1], [1, 1, 1], weights=[1, 1, 2])
    _, f1 = contrib.metrics.f1_score([1, 1, 0, 0], [0.9, 0.1, 0.8, 0.3])
    weighted = contrib.metrics.accuracy([1, 0], [1, 1], weights=[3.0, 1.0])
    _, mean = contrib.metrics.streaming_mean([1.0, 3.0])
    assert run(update, f1, weighted, mean) == [0.75, 0.5, 0.75, 2]


# --- Programs ------------------------------------------------------------------------------------


def test_hparams_are_parsed_as_their_own_types():
    hparams = contrib.training.HParams(rate=0.1, units=[8, 4], name="x", is_on=False)
    assert hparams.parse("rate=1,units=[2,3,5],is_on=true,units[1]=7") is hparams
    assert hparams.values() == {"rate": 1.0, "units": [2, 7, 5], "name": "x", "is_on": True}
    assert hparams.parse_json('{"name": "y"}').get("name") == "y"
    assert "rate" in hparams
    assert hparams.get("nothing", 3) == 3
    assert hparams.to_json(sort_keys=True).startswith('{"is_on": true, "name": "y"')
    assert repr(hparams).startswith("HParams(is_on=True, name='y', rate=1.0")
    hparams.del_hparam("rate")
    for wrong, error in [
        (lambda: hparams.parse("unit=3"), "`name` .'unit'. is unknown. Did you mean 'units'"),
        (lambda: hparams.parse("units=3"), "`value` .'3'. of 'units' must be a list"),
        (lambda: hparams.parse("units=[x]"), "`value` .'x'. of 'units' must be of type int"),
        (lambda: hparams.parse("a b"), "`values` .'a b'. must be like 'a=1,b=.2,3.'"),
        (lambda: hparams.add_hparam("units", 3), "`name` .'units'. is taken"),
        (lambda: hparams.set_hparam("is_on", 3), "`value` .3. of 'is_on' must be of type bool"),
    ]:
        with pytest.raises(ValueError, match=error):
            wrong()


def test_an_experiment_trains_evaluates_and_exports(tmp_path):
    def experiment_fn(run_config, hparams):
        return contrib.learn.Experiment(
            est.Estimator(Model(), config=run_config),
            numbers(),
            numbers(2),
            train_steps=hparams.steps,
            eval_steps=None,
            eval_delay_secs=0,
        )

    config = contrib.learn.RunConfig(model_dir=str(tmp_path))
    hparams = contrib.training.HParams(steps=3)
    runner = contrib.learn.python.learn.learn_runner
    results, _ = runner.run(experiment_fn, run_config=config, hparams=hparams)
    assert (results["global_step"], results["mean"]) == (3, 0.5)
    experiment = experiment_fn(config, hparams)
    assert experiment.evaluate(name="again")["global_step"] == 3
    assert experiment.test()["global_step"] == 4
    with pytest.raises(ValueError, match="`schedule` .'fly'."):
        runner.run(experiment_fn, run_config=config, schedule="fly", hparams=hparams)
    with pytest.raises(ValueError, match="Pass `run_config`"):
        runner.run(experiment_fn)
    with pytest.raises(ValueError, match="`eval_metrics` must be None"):
        contrib.learn.Experiment(experiment.estimator, numbers(), numbers(), eval_metrics={})


def test_forward_features_predicts_them_too(tmp_path):
    def model_fn(features, labels, mode):
        spec = Model()(features["x"], labels, mode)
        return spec._replace(predictions={"y": spec.predictions})

    def input_fn():
        return tf.data.Dataset.from_tensors({"x": [1.0, 2.0], "id": [7, 8]})

    model = est.Estimator(model_fn, str(tmp_path))
    model.train(input_fn)
    for keys in ("id", ["id"], None):
        rows = list(contrib.estimator.forward_features(model, keys).predict(input_fn))
        assert [row["id"] for row in rows] == [7, 8]
        assert set(rows[0]) == {"y", "id"} | ({"x"} if keys is None else set())
    with pytest.raises(
        ValueError, match="`keys` has 'name', which is not a feature. There are: id"
    ):
        list(contrib.estimator.forward_features(model, "name").predict(input_fn))


def test_heads_are_made_by_functions_and_optimizers_are_clipped():
    heads = contrib.estimator
    made = [
        heads.binary_classification_head(),
        heads.logistic_regression_head(),
        heads.multi_class_head(3, name="a"),
        heads.multi_label_head(3, name="b"),
        heads.poisson_regression_head(),
        heads.regression_head(label_dimension=2),
    ]
    assert [head.logits_dimension for head in made] == [1, 1, 3, 3, 1, 2]
    assert heads.multi_head(made[2:4]).logits_dimension == 6
    clipped = heads.clip_gradients_by_norm(V1.train.GradientDescentOptimizer(1.0), 5.0)
    found = trained(clipped, lambda w: tf.reduce_sum(w * [0.0, 30.0, 40.0]), num_steps=1)
    np.testing.assert_allclose(found, [1, 2 - 3, 3 - 4], rtol=1e-6)


def test_datasets_strategies_and_checkpoints():
    data = contrib.data
    batches = tf.data.Dataset.range(5).apply(data.batch_and_drop_remainder(2))
    assert batches.element_spec.shape == [2]
    padded = tf.data.Dataset.range(5).map(tf.range)
    padded = padded.apply(data.padded_batch_and_drop_remainder(2, [None]))
    assert padded.element_spec.shape.as_list() == [2, None]
    assert contrib.data.python.ops.batching.map_and_batch is V1.data.experimental.map_and_batch
    strategy = contrib.distribute.MirroredStrategy(num_gpus=0)
    assert strategy.num_replicas_in_sync == 1
    assert contrib.distribute.OneDeviceStrategy("/cpu:0").num_replicas_in_sync == 1
    w = V1.get_variable("scope/w", [])
    assert contrib.framework.get_variables("scope") == [w]
    assert contrib.framework.get_variables_to_restore(exclude=["scope"]) == []
