"""tf.contrib computes what it did: against NumPy, enumeration, or the functions that it became."""

import functools
import itertools

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from estimator.compat.contrib import contrib_metrics, contrib_rnn, make_contrib
from estimator.compat.contrib.packages import PACKAGES
from tests.compat.in_session import run
from tests.toy import events, numbers

contrib = make_contrib(has_slim=False)

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
        ("lookup.IdTableWithHashBuckets", "Use tf.lookup.StaticVocabularyTable, of an init"),
        ("metrics.streaming_mean_iuo", "Did you mean 'streaming_mean_iou'"),
        # Not the most similar name, which is that of another metric.
        ("metrics.streaming_covariance", "Install tf-slim, which has the other metrics"),
        ("metrics.streaming_recall_at_k", "Install tf-slim, which has the other metrics"),
        ("data.reduce_dataset", "Use tf.data."),
        ("eager.python.tfe.Network", "Use tf.compat.v1.enable_eager_execution"),
        ("util.loader", "Use tf.load_op_library"),
        ("learn.python.learn.estimators.estimator.x", "estimator is not provided"),
        ("rnn.LSTMCell", "tf.contrib.rnn.LSTMCell needs tf-keras as tf.keras: pip install"),
        ("rnn.LSTMBlockFusedCell", "LSTMBlockFusedCell needs tf-keras as tf.keras: pip install"),
    ],
)
def test_what_is_not_provided_says_what_replaces_it(path, message):
    with pytest.raises(AttributeError, match=message):
        functools.reduce(getattr, path.split("."), contrib)


def test_a_file_with_names_made_on_demand_is_no_package():
    assert [file for file in (contrib_metrics, contrib_rnn) if hasattr(file, "__path__")] == []


# --- Conditional random fields: against all sequences of tags ------------------------------------


def all_scores(scores, transitions, length):
    """The score of each sequence of tags of one example."""
    return {
        tags: sum(scores[i, tag] for i, tag in enumerate(tags))
        + sum(transitions[a, b] for a, b in itertools.pairwise(tags))
        for tags in itertools.product(range(scores.shape[1]), repeat=length)
    }


@pytest.mark.parametrize("lengths", [[5, 3, 0, 2], [1, 1, 0, 1]])
def test_a_crf_agrees_with_the_enumeration_of_all_tags(lengths):
    crf, random = contrib.crf, np.random.default_rng(0)
    shape = [4, max(lengths), 3]
    scores = random.normal(size=shape).astype("float32")
    transitions = random.normal(size=[3, 3]).astype("float32")
    tags = random.integers(0, 3, size=shape[:2])
    inputs = V1.placeholder_with_default(scores, [None, None, 3])
    likelihood, _ = crf.crf_log_likelihood(inputs, tags, lengths, transitions)
    decoded = crf.crf_decode(inputs, transitions, lengths)
    found, best_tags, best = run(likelihood, *decoded)
    for i, length in enumerate(lengths):
        listed = all_scores(scores[i], transitions, length)
        norm = np.log(np.sum(np.exp(list(listed.values()))))
        assert found[i] == pytest.approx(listed[tuple(tags[i, :length])] - norm, abs=1e-4)
        expected = max(listed, key=listed.get)
        assert tuple(best_tags[i]) == expected + (0,) * (shape[1] - length)
        if length == 0:
            assert found[i] == 0
            assert best[i] == scores[i, 0].max()
            continue
        assert best[i] == pytest.approx(listed[expected], abs=1e-4)
        viterbi, score = crf.viterbi_decode(scores[i, :length], transitions)
        assert (tuple(viterbi), score) == (expected, pytest.approx(best[i], abs=1e-4))


def test_a_crf_makes_its_transitions_unless_they_are_given():
    inputs, tags = np.ones([1, 2, 3], np.float32), [[0, 2]]
    likelihood, transitions = contrib.crf.crf_log_likelihood(inputs, tags, [2])
    again, _ = contrib.crf.crf_log_likelihood(inputs, tags, [2], transitions)
    assert [v.op.name for v in V1.trainable_variables()] == ["transitions"]
    own, given, values = run(likelihood, again, transitions)
    assert (own, values.shape) == (given, (3, 3))
    assert own == pytest.approx(values[0, 2] - np.log(np.exp(values).sum()), abs=1e-5)


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


@pytest.fixture(params=[True, False], ids=["resource", "ref"])
def both_kinds_of_variables(request):
    was = V1.resource_variables_enabled()
    (V1.enable_resource_variables if request.param else V1.disable_resource_variables)()
    yield
    (V1.enable_resource_variables if was else V1.disable_resource_variables)()


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


@pytest.mark.usefixtures("both_kinds_of_variables")
def test_weight_decay_of_a_sparse_gradient_is_that_of_its_rows():
    optimizer = contrib.opt.extend_with_decoupled_weight_decay(V1.train.GradientDescentOptimizer)
    found = trained(optimizer(0.5, 0.0), of_rows(0, 2, 2), num_steps=1)
    assert found.tolist() == [0.5, 2, 1.5]


def test_momentumw_decays_the_variables_that_are_listed():
    w, other = (V1.get_variable(name, initializer=2.0) for name in ("w", "other"))
    optimizer = contrib.opt.MomentumWOptimizer(0.25, 0.5, 0.5)
    pairs = [(tf.constant(1.0), w), (tf.constant(1.0), other)]
    step = optimizer.apply_gradients(pairs, decay_var_list=[w])
    with V1.Session() as session:
        session.run(V1.global_variables_initializer())
        for _ in range(2):
            session.run(step)
        # The momentum is 1, then 1.5.
        expected = [(2 * 0.75 - 0.5) * 0.75 - 0.75, 2 - 0.5 - 0.75]
        assert session.run([w, other]) == expected


@pytest.mark.usefixtures("both_kinds_of_variables")
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
    with pytest.raises(RuntimeError, match="Call `minimize` or `apply_gradients` before `swapping"):
        optimizer.swapping_saver()
    step = optimizer.minimize(w * w)
    saver = optimizer.swapping_saver({v.op.name: v for v in V1.global_variables()})
    with V1.Session() as session:
        session.run(V1.global_variables_initializer())
        session.run(step)
        path = saver.save(session, str(tmp_path / "model"))
    assert contrib.framework.load_variable(path, "w") == 3
    assert contrib.framework.load_variable(path, "w/ExponentialMovingAverage") == 2
    assert optimizer.swapping_saver([V1.train.get_or_create_global_step()]) is not None
    with pytest.raises(ValueError, match="`var_list` has 'w', but lacks 'w/Exp.*', with which it"):
        optimizer.swapping_saver([w])


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
    metrics = contrib.metrics
    _, update = metrics.streaming_accuracy([1, 0, 1], [1, 1, 1], weights=[1, 1, 2])
    weighted = metrics.accuracy([1, 0], [1, 1], weights=[3.0, 1.0])
    plain = metrics.accuracy([1, 0], [1, 1])
    _, mean = metrics.streaming_mean([1.0, 3.0])
    _, less = metrics.streaming_percentage_less([1.0, 2.0, 3.0, 4.0], 3.5)
    predictions = tf.constant([0.9, 0.1, 0.8])
    _, recalls = metrics.streaming_recall_at_thresholds(predictions, [1, 1, 0], [0.0, 0.5])
    values, updates = metrics.aggregate_metric_map({"a": (plain, update), "b": (weighted, mean)})
    assert (values, updates) == ({"a": plain, "b": weighted}, {"a": update, "b": mean})
    found = run(update, weighted, mean, less, plain, recalls)
    assert found[:5] == [0.75, 0.75, 2, 0.75, 0.5]
    np.testing.assert_allclose(found[5], [1, 0.5], rtol=1e-5)


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        # The classes with the highest scores are 2, which is wrong, and 0, which is right.
        (contrib.metrics.streaming_sparse_precision_at_k, 1 / 2),
        (contrib.metrics.streaming_sparse_recall_at_k, 1 / 4),
        (contrib.metrics.streaming_sparse_average_precision_at_k, 1 / 2),
    ],
    ids=["precision", "recall", "average precision"],
)
def test_metrics_at_k_take_predictions_first(metric, expected):
    scores = tf.constant([[0.3, 0.1, 0.6], [0.5, 0.4, 0.1]])
    _, update = metric(scores, tf.constant([[0, 1], [0, 2]], tf.int64), 1)
    assert run(update)[0] == pytest.approx(expected)


def test_the_f1_score_is_the_best_of_all_thresholds():
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, size=[2, 50])
    weights = random.uniform(size=[2, 50])
    predictions = 0.2 * labels + 0.28 * random.uniform(size=[2, 50])
    batch = V1.placeholder(tf.int32, [])
    value, update = contrib.metrics.f1_score(
        *(tf.gather(tf.constant(a, tf.float32), batch) for a in (labels, predictions, weights)),
        updates_collections="updates",
    )
    assert V1.get_collection("updates") == [update]
    with V1.Session() as session:
        session.run(V1.local_variables_initializer())
        updated = [session.run(update, {batch: i}) for i in range(2)][-1]
        found = session.run(value, {batch: 0})
    scores = []
    for threshold in np.linspace(0, 1, 200):
        is_hit = predictions > threshold
        hits = (weights * is_hit * labels).sum()
        wrong = (weights * (is_hit != labels)).sum()
        scores.append(2 * hits / (2 * hits + wrong))
    # At 0.5, all are below the threshold.
    assert scores[100] == 0
    assert found == updated == pytest.approx(max(scores), abs=1e-5)
    with pytest.raises(ValueError, match=r"`num_thresholds` \(1\)"):
        contrib.metrics.f1_score([1], [0.5], num_thresholds=1)


# --- Programs ------------------------------------------------------------------------------------


def loss_fn(labels, logits):
    return (labels - logits) ** 2


SUM = V1.losses.Reduction.SUM


@pytest.mark.parametrize(
    ("function", "given", "make_head"),
    [
        ("binary_classification_head", [[0.3], ["a", "b"], SUM, loss_fn, "n"], est.BinaryClassHead),
        ("logistic_regression_head", [SUM, "n"], est.LogisticRegressionHead),
        (
            "poisson_regression_head",
            [2, SUM, False, "n"],
            lambda weights, dim, *rest: est.PoissonRegressionHead(dim, weights, *rest),
        ),
        (
            "regression_head",
            [2, SUM, loss_fn, tf.exp, "n"],
            lambda weights, dim, *rest: est.RegressionHead(dim, weights, *rest),
        ),
        (
            "multi_class_head",
            [["a", "b", "c"], SUM, loss_fn, "n"],
            lambda *given: est.MultiClassHead(3, *given),
        ),
        (
            "multi_label_head",
            [[0.3], ["a", "b", "c"], SUM, loss_fn, ["b"], "n"],
            lambda *given: est.MultiLabelHead(3, *given),
        ),
    ],
)
def test_functions_make_heads_of_all_arguments(function, given, make_head):
    first = [3] if "multi" in function else []
    made = getattr(contrib.estimator, function)(*first, "w", *given)
    head = make_head("w", *given)
    assert type(made) is type(head)
    assert plain(made) == plain(head) | {"training_scope": None, "loss_scope": None}


def plain(head):
    """The head's attributes; of those that are functions of its own, the names."""
    return {
        name: value.__qualname__ if callable(value) else value for name, value in vars(head).items()
    }


def test_heads_are_joined_and_gradients_are_clipped():
    heads = contrib.estimator
    made = [heads.multi_class_head(3, name="a"), heads.multi_label_head(3, name="b")]
    assert heads.multi_head(made).logits_dimension == 6
    clipped = heads.clip_gradients_by_norm(V1.train.GradientDescentOptimizer(1.0), 5.0)
    found = trained(clipped, lambda w: tf.reduce_sum(w * [0.0, 30.0, 40.0]), num_steps=1)
    np.testing.assert_allclose(found, [1, 2 - 3, 3 - 4], rtol=1e-6)


@pytest.mark.parametrize(
    ("make_head", "scope"),
    [(contrib.estimator.multi_class_head, "head"), (est.MultiClassHead, "training")],
)
def test_an_optimizer_is_in_the_scope_of_a_head_of_contrib(make_head, scope):
    head = make_head(3)
    w = V1.get_variable("w", [2, 3])
    optimizer = V1.train.AdamOptimizer()
    batch = {"features": {}, "logits": tf.ones([2, 2]) @ w, "labels": [[0], [2]]}
    head.create_estimator_spec(**batch, mode="train", optimizer=optimizer)
    names = [variable.op.name for variable in optimizer.variables()]
    assert f"{scope}/beta1_power" in names


def test_a_tpu_without_a_name_is_this_machine(tmp_path):
    resolver = contrib.cluster_resolver.TPUClusterResolver("", zone=None)
    assert isinstance(resolver, V1.distribute.cluster_resolver.TPUClusterResolver)
    config = contrib.tpu.RunConfig(cluster=resolver, model_dir=str(tmp_path))
    assert config.master == ""


def test_datasets_and_strategies():
    data = contrib.data
    batches = tf.data.Dataset.range(5).apply(data.batch_and_drop_remainder(2))
    assert batches.element_spec.shape == [2]
    padded = tf.data.Dataset.range(5).map(tf.range)
    padded = padded.apply(data.padded_batch_and_drop_remainder(2, [None]))
    assert padded.element_spec.shape.as_list() == [2, None]
    assert contrib.data.python.ops.batching.map_and_batch is V1.data.experimental.map_and_batch
    assert contrib.tpu.python.ops.tpu_ops.cross_replica_sum is V1.tpu.cross_replica_sum
    evaluation = contrib.training.python.training.evaluation
    assert evaluation.checkpoints_iterator is tf.train.checkpoints_iterator
    with pytest.raises(ValueError, match=r"`num_gpus` \(-1\)"):
        contrib.distribute.MirroredStrategy(num_gpus=-1)
    for given in (
        {"devices": ["/cpu:0"], "num_gpus": 0},
        {"num_gpus": 0, "num_gpus_per_worker": 0},
    ):
        with pytest.raises(
            ValueError, match=r"`num_gpus` \(0\) and .* exclude each other. Pass on"
        ):
            contrib.distribute.MirroredStrategy(**given)
    strategies = [
        contrib.distribute.MirroredStrategy(num_gpus=0),
        contrib.distribute.MirroredStrategy(["/cpu:0"]),
        contrib.distribute.OneDeviceStrategy("/cpu:0"),
    ]
    for strategy in strategies:
        (device,) = strategy.extended.worker_devices
        assert device.lower().endswith("cpu:0")


def test_heads_of_one_reduction_by_either_name_are_one_head():
    heads, mean = contrib.estimator, V1.losses.Reduction.SUM_OVER_BATCH_SIZE
    named = heads.binary_classification_head(loss_reduction=mean, name="a")
    both = heads.multi_head([named, heads.regression_head(name="b")])
    assert both.logits_dimension == 2
    summed = heads.regression_head(loss_reduction=V1.losses.Reduction.SUM, name="b")
    with pytest.raises(ValueError, match="loss reductions"):
        print(heads.multi_head([named, summed]).loss_reduction)


def test_names_that_have_others_today():
    nest = contrib.framework.nest
    assert nest.is_sequence([1])
    assert not nest.is_sequence(1)
    assert nest.flatten({"b": [1, 2], "a": 3}) == [3, 1, 2]
    made = {name: make(0.1) for name, make in contrib.layers.OPTIMIZER_CLS_NAMES.items()}
    assert isinstance(made["Momentum"], tf.compat.v1.train.MomentumOptimizer)
    assert sorted(made) == ["Adagrad", "Adam", "Ftrl", "Momentum", "RMSProp", "SGD"]


def test_a_function_is_called_as_a_graph_of_its_own():
    doubled = contrib.eager.python.tfe.defun(lambda x: x * 2)
    assert run(doubled(tf.constant(3))) == [6]
    signature = [tf.TensorSpec([], tf.int32)]
    assert run(contrib.eager.defun(lambda x: x + 1, signature)(3)) == [4]


def test_a_condition_that_is_known_makes_no_cond():
    framework = contrib.framework
    for pred in (True, tf.constant(1) > 0):
        assert framework.smart_cond(pred, lambda: "yes", lambda: "no") == "yes"
        assert framework.smart_constant_value(pred)
    fed = V1.placeholder_with_default(False, [])
    assert framework.smart_constant_value(fed) is None
    assert run(framework.smart_cond(fed, lambda: 1, lambda: 2)) == [2]


def test_the_value_of_a_constant():
    assert contrib.util.constant_value(tf.constant([1, 2])).tolist() == [1, 2]
    assert contrib.util.constant_value(V1.placeholder(tf.int32)) is None
    proto = contrib.util.make_tensor_proto([3.0])
    assert contrib.util.make_ndarray(proto).tolist() == [3.0]


def test_a_hook_summarizes_the_last_batch_of_an_evaluation(tmp_path):
    folder = str(tmp_path / "at_end")

    def model_fn(features, labels, mode):
        loss = tf.reduce_mean(tf.cast(features, tf.float32))
        V1.summary.scalar("of_batch", loss)
        hook = contrib.training.SummaryAtEndHook(folder)
        count = V1.assign_add(V1.train.get_global_step(), 1)
        return est.EstimatorSpec(mode, loss=loss, train_op=count, evaluation_hooks=[hook])

    with est.Estimator(model_fn, str(tmp_path)) as model:
        model.train(numbers(9), steps=5)
        model.evaluate(numbers(9), steps=3)
    (found,) = [(step, tag, value.simple_value) for step, tag, value in events(folder)]
    assert found == (5, "of_batch", 2.0)
    with pytest.raises(ValueError, match="`log_dir` or a `summary_writer`"):
        contrib.training.SummaryAtEndHook()
