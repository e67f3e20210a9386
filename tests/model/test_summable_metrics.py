"""A metric counts every example on any number of replicas, whatever it is made of.

What each must be is worked out by NumPy, over all examples at once.
"""

import functools
import itertools
import logging

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import estimator as est

V1 = tf.compat.v1
BATCH = 4
_random = np.random.default_rng(7)
NUM = 50
DATA = {
    "x": _random.normal(size=NUM).astype(np.float32),
    "weight": _random.uniform(0.5, 2, NUM).astype(np.float32),
    "label": _random.integers(0, 4, NUM),
    "scores": _random.normal(size=(NUM, 4)).astype(np.float32),
}
DATA["is_one"] = DATA["label"] == 1
DATA["chance"] = 1 / (1 + np.exp(-DATA["scores"][:, 1]))


def config(replicas):
    if replicas == 1:
        return est.RunConfig(save_summary_steps=None)
    return est.RunConfig(strategy="mirrored", num_replicas=replicas, save_summary_steps=None)


def make_model_fn(make_metrics):
    def model_fn(features, labels, mode):
        w = V1.get_variable("w", initializer=np.float32(3))
        loss = tf.reduce_mean(features["x"] * w)
        if mode == est.ModeKeys.TRAIN:
            step = V1.train.get_global_step().assign_add(1)
            return est.EstimatorSpec(mode, loss=loss, train_op=step)
        return est.EstimatorSpec(mode, loss=loss, eval_metric_ops=make_metrics(features, w))

    return model_fn


def make_input_fn(num):
    def input_fn():
        rows = {name: column[:num] for name, column in DATA.items()}
        return tf.data.Dataset.from_tensor_slices((rows, rows["label"])).batch(BATCH)

    return input_fn


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("model"))
    model = est.Estimator(make_model_fn(lambda features, w: {}), path, config(1))
    model.train(make_input_fn(8), steps=1)
    return path


# --- Metrics that replicas can add up ------------------------------------------------------------


def v1_metrics(f, w):
    m, one, says = V1.metrics, f["is_one"], f["scores"][:, 1] > 0
    chance, at = f["chance"], [0.2, 0.5, 0.8]
    label = f["label"][:, None]
    top = tf.cast(tf.math.top_k(f["scores"], 2)[1], tf.int64)
    weights = f["weight"]
    pairs = {
        "accuracy": m.accuracy(f["label"], tf.argmax(f["scores"], -1), weights),
        "auc": m.auc(one, chance, num_thresholds=50),
        "auc_pr": m.auc(one, chance, curve="PR", summation_method="careful_interpolation"),
        "average_precision_at_k": m.average_precision_at_k(label, f["scores"], 2),
        "false_negatives": m.false_negatives(one, says, weights),
        "false_negatives_at_thresholds": m.false_negatives_at_thresholds(one, chance, at),
        "false_positives": m.false_positives(one, says),
        "false_positives_at_thresholds": m.false_positives_at_thresholds(one, chance, at),
        "mean": m.mean(f["x"] * w, weights),
        "mean_absolute_error": m.mean_absolute_error(f["x"], chance),
        "mean_cosine_distance": m.mean_cosine_distance(f["scores"], f["scores"][:, ::-1], dim=1),
        "mean_iou": m.mean_iou(f["label"], tf.argmax(f["scores"], -1), 4),
        "mean_per_class_accuracy": m.mean_per_class_accuracy(
            f["label"], tf.argmax(f["scores"], -1), 4
        ),
        "mean_relative_error": m.mean_relative_error(f["x"], chance, weights),
        "mean_squared_error": m.mean_squared_error(f["x"], chance),
        "mean_tensor": m.mean_tensor(tf.reduce_sum(f["scores"], 0)),
        "percentage_below": m.percentage_below(f["x"], 0.3, weights),
        "precision": m.precision(one, says, weights),
        "precision_at_k": m.precision_at_k(label, f["scores"], 2),
        "precision_at_k_of_class": m.precision_at_k(label, f["scores"], 2, class_id=1),
        "precision_at_thresholds": m.precision_at_thresholds(one, chance, at),
        "precision_at_top_k": m.precision_at_top_k(label, top, 2),
        "recall": m.recall(one, says),
        "recall_at_k": m.recall_at_k(label, f["scores"], 2),
        "recall_at_k_weighted": m.recall_at_k(label, f["scores"], 3, weights=weights),
        "recall_at_thresholds": m.recall_at_thresholds(one, chance, at),
        "recall_at_top_k": m.recall_at_top_k(label, top, 2),
        "root_mean_squared_error": m.root_mean_squared_error(f["x"], chance),
        "sensitivity_at_specificity": m.sensitivity_at_specificity(one, chance, 0.6),
        "sparse_average_precision_at_k": m.sparse_average_precision_at_k(label, f["scores"], 2),
        "sparse_precision_at_k": m.sparse_precision_at_k(label, f["scores"], 2),
        "specificity_at_sensitivity": m.specificity_at_sensitivity(one, chance, 0.6),
        "true_negatives": m.true_negatives(one, says),
        "true_negatives_at_thresholds": m.true_negatives_at_thresholds(one, chance, at),
        "true_positives": m.true_positives(one, says, weights),
        "true_positives_at_thresholds": m.true_positives_at_thresholds(one, chance, at),
    }
    precision, recall = m.precision(one, says), m.recall(one, says)
    f1 = 2 * precision[0] * recall[0] / (precision[0] + recall[0] + 1e-9)
    return {**pairs, "f1": (f1, tf.group(precision[1], recall[1]))}


def keras_metrics(library):
    """Of Keras 3 or tf-keras: name -> how it is made, and the columns that it is updated with."""
    m = library.metrics
    binary, regression = ("is_one", "chance"), ("x", "chance")
    dense, sparse, classes = ("one_hot", "softmax"), ("label", "softmax"), ("label", "class")
    table = {
        **dict.fromkeys(
            ["BinaryAccuracy", "BinaryCrossentropy", "Precision", "Recall", "TrueNegatives"], binary
        ),
        **dict.fromkeys(["FalseNegatives", "FalsePositives", "TruePositives"], binary),
        **dict.fromkeys(["CategoricalAccuracy", "CategoricalCrossentropy", "F1Score"], dense),
        **dict.fromkeys(["CategoricalHinge", "KLDivergence", "CosineSimilarity"], dense),
        **dict.fromkeys(["SparseCategoricalAccuracy", "SparseCategoricalCrossentropy"], sparse),
        **dict.fromkeys(["Hinge", "SquaredHinge", "MeanAbsoluteError", "Poisson"], regression),
        **dict.fromkeys(["MeanAbsolutePercentageError", "MeanSquaredError"], regression),
        **dict.fromkeys(["MeanSquaredLogarithmicError", "RootMeanSquaredError"], regression),
        **dict.fromkeys(["LogCoshError"], regression),
        "Accuracy": classes,
        "Mean": ("x",),
        "Sum": ("x",),
    }
    made = {name: (getattr(m, name)(), columns) for name, columns in table.items()}
    made["AUC"] = m.AUC(num_thresholds=50), binary
    made["MultiAUC"] = m.AUC(multi_label=True, num_labels=4), dense
    made["PrecisionTop"] = m.Precision(top_k=2, class_id=1), dense
    for name in ("PrecisionAtRecall", "RecallAtPrecision"):
        made[name] = getattr(m, name)(0.6), binary
    for name in ("SensitivityAtSpecificity", "SpecificityAtSensitivity"):
        made[name] = getattr(m, name)(0.6), binary
    made["FBetaScore"] = m.FBetaScore(average="macro", beta=2.0), dense
    made["IoU"] = m.IoU(4, [1, 2]), classes
    made["MeanIoU"] = m.MeanIoU(4), classes
    made["BinaryIoU"] = m.BinaryIoU([0, 1]), binary
    made["OneHotIoU"] = m.OneHotIoU(4, [0, 3]), dense
    made["OneHotMeanIoU"] = m.OneHotMeanIoU(4), dense
    made["TopKCategoricalAccuracy"] = m.TopKCategoricalAccuracy(2), dense
    made["SparseTopKCategoricalAccuracy"] = m.SparseTopKCategoricalAccuracy(2), sparse
    made["R2Score"] = m.R2Score(), dense
    made["MeanMetricWrapper"] = m.MeanMetricWrapper(lambda y, p: tf.abs(y - p)), regression
    for name in ("ConcordanceCorrelation", "PearsonCorrelation"):
        if hasattr(m, name):
            made[name] = getattr(m, name)(), dense
    return made


def make_keras_metrics(library):
    def metrics(f, w):
        columns = {
            **f,
            "one_hot": tf.one_hot(f["label"], 4),
            "softmax": tf.nn.softmax(f["scores"]),
            "class": tf.argmax(f["scores"], -1),
        }
        made = keras_metrics(library)
        for metric, names in made.values():
            metric.update_state(*(columns[name] for name in names))
        mean = library.metrics.Mean()
        mean.update_state(f["x"] * w, sample_weight=f["weight"])
        return {"weighted": mean, **{name: metric for name, (metric, _) in made.items()}}

    return metrics


SUMMED = {
    "v1": v1_metrics,
    "keras": make_keras_metrics(keras),
    "tf_keras": make_keras_metrics(tf_keras),
}


@np.errstate(invalid="ignore")
def numpy_metrics(num):
    """What the metrics must be that are not approximations."""
    d = {name: column[:num].astype(np.float64) for name, column in DATA.items()}
    one, says, weight = DATA["is_one"][:num], d["scores"][:, 1] > 0, d["weight"]
    label, classes = DATA["label"][:num], d["scores"].argmax(-1)
    error = d["x"] - d["chance"]
    hits = np.array([np.sum((label == c) & (classes == c)) for c in range(4)])
    labels = np.array([np.sum(label == c) for c in range(4)])
    either = np.array([np.sum((label == c) | (classes == c)) for c in range(4)])
    order = np.argsort(-d["scores"], -1)
    in_2, in_3 = ((order[:, :k] == label[:, None]).any(-1) for k in (2, 3))
    is_first = order[:, 0] == label
    at = {t: d["chance"] > t for t in np.float32([0.2, 0.5, 0.8])}

    def ratio(part, whole):
        return np.sum(part) / max(np.sum(whole), 1e-30)

    average_precision = np.mean(np.where(is_first, 1, np.where(in_2, 0.5, 0)))
    precision, recall = ratio(one & says, says), ratio(one & says, one)
    batches = [d["scores"][i : i + BATCH].sum(0) for i in range(0, num, BATCH)]
    cosine = np.sum(d["scores"] * d["scores"][:, ::-1], -1)
    return {
        "accuracy": np.average(label == classes, weights=weight),
        "average_precision_at_k": average_precision,
        "sparse_average_precision_at_k": average_precision,
        "f1": 2 * precision * recall / (precision + recall + 1e-9),
        "false_negatives": np.sum(weight * (one & ~says)),
        "false_negatives_at_thresholds": [np.sum(one & ~s) for s in at.values()],
        "false_positives": np.sum(~one & says),
        "false_positives_at_thresholds": [np.sum(~one & s) for s in at.values()],
        "mean": np.average(3 * d["x"], weights=weight),
        "mean_absolute_error": np.abs(error).mean(),
        "mean_cosine_distance": 1 - cosine.mean(),
        "mean_iou": np.mean((hits / np.maximum(either, 1))[either > 0]),
        "mean_per_class_accuracy": np.mean(hits / np.maximum(labels, 1)),
        "mean_relative_error": np.mean(np.abs(error) / weight),
        "mean_squared_error": np.mean(error**2),
        "mean_tensor": np.mean(batches, 0),
        "percentage_below": np.average(d["x"] < 0.3, weights=weight),
        "precision": ratio(weight * (one & says), weight * says),
        "precision_at_k": in_2.mean() / 2,
        "sparse_precision_at_k": in_2.mean() / 2,
        "precision_at_k_of_class": np.sum(in_2 & one) / (order[:, :2] == 1).any(-1).sum(),
        "precision_at_thresholds": [ratio(one & s, s) for s in at.values()],
        "precision_at_top_k": in_2.mean() / 2,
        "recall": recall,
        "recall_at_k": in_2.mean(),
        "recall_at_k_weighted": np.average(in_3, weights=weight),
        "recall_at_thresholds": [ratio(one & s, one) for s in at.values()],
        "recall_at_top_k": in_2.mean(),
        "root_mean_squared_error": np.sqrt(np.mean(error**2)),
        "true_negatives": np.sum(~one & ~says),
        "true_negatives_at_thresholds": [np.sum(~one & ~s) for s in at.values()],
        "true_positives": np.sum(weight * (one & says)),
        "true_positives_at_thresholds": [np.sum(one & s) for s in at.values()],
    }


def names_in(library):
    """What a library calls its metrics, but for those that depend on how batches are made."""
    if library == "v1":
        return {name for name in dir(V1.metrics) if not name.startswith("_")}
    module = {"keras": keras, "tf_keras": tf_keras}[library].metrics
    names = {name for name in dir(module) if name[0].isupper() and not name.isupper()}
    return names - {"Metric", "MeanTensor", "MeanRelativeError"}


LIBRARY_CASES = [
    ("v1", 2),
    *(pytest.param(library, 2, marks=pytest.mark.full) for library in ("keras", "tf_keras")),
    *(pytest.param(library, 3, marks=pytest.mark.full) for library in SUMMED),
]


@pytest.mark.parametrize(("library", "replicas"), LIBRARY_CASES)
def test_a_metric_of_a_library_is_the_same_on_replicas(library, replicas, model_dir, caplog):
    one = est.Estimator(make_model_fn(SUMMED[library]), model_dir, config(1))
    several = est.Estimator(make_model_fn(SUMMED[library]), model_dir, config(replicas))
    with one, several, caplog.at_level(logging.WARNING, "estimator"):
        for num in (1, 7, NUM):
            expected = one.evaluate(make_input_fn(num))
            results = several.evaluate(make_input_fn(num))
            assert names_in(library) <= results.keys() == expected.keys()
            for name, value in expected.items():
                np.testing.assert_allclose(results[name], value, rtol=1e-5, err_msg=name)
            for name, value in numpy_metrics(num).items() if library == "v1" else ():
                np.testing.assert_allclose(results[name], value, 1e-5, 1e-6, err_msg=name)
    assert "1 replica" not in caplog.text


@pytest.mark.parametrize("replicas", [2, 3])
def test_names_of_replicas_are_no_part_of_those_of_metrics(replicas, model_dir):
    """Those of `*_at_k` are made of the name scope, which differs from replica to replica."""

    def metrics(f, w):
        with tf.name_scope("outer"):
            top = V1.metrics.recall_at_k(f["label"][:, None], f["scores"], 2)
        return {"top": top, "again": V1.metrics.recall_at_k(f["label"][:, None], f["scores"], 2)}

    with est.Estimator(make_model_fn(metrics), model_dir, config(replicas)) as model:
        for num in (1, 7, NUM):
            results = model.evaluate(make_input_fn(num))
            assert results["top"] == results["again"] == numpy_metrics(num)["recall_at_k"]


# --- Metrics that a model_fn writes by hand ------------------------------------------------------

LOCAL = [V1.GraphKeys.LOCAL_VARIABLES]
LOCAL_METRIC = [*LOCAL, V1.GraphKeys.METRIC_VARIABLES]
SUM_ON_READ = {
    "synchronization": tf.VariableSynchronization.ON_READ,
    "aggregation": tf.VariableAggregation.SUM,
}


def size(f):
    return tf.cast(tf.size(f["x"]), tf.float32)


def got(collections, start=0.0, **options):
    return V1.get_variable(
        "state", initializer=np.float32(start), trainable=False, collections=collections, **options
    )


def made(collections=LOCAL, start=0.0, **options):
    return V1.Variable(np.float32(start), trainable=False, collections=collections, **options)


def counted(make):
    def metric(f, w):
        state = make()
        return state, state.assign_add(size(f))

    return metric


def build_sum(state):
    """The value of a variable over all replicas, as `tf.compat.v1.metrics` reads theirs."""
    context = tf.distribute.get_replica_context()
    return context.merge_call(lambda strategy, v: tf.identity(v), args=(state,))


def merged(f, w):
    """Does as `tf.compat.v1.metrics` does."""
    state = made(LOCAL_METRIC, **SUM_ON_READ)
    update = state.assign_add(size(f))
    return build_sum(state), update


def merged_maximum(f, w):
    state = made(LOCAL_METRIC, **SUM_ON_READ)
    update = state.assign(tf.maximum(state, tf.reduce_max(f["x"])))
    return build_sum(state), update


def merged_from_one(f, w):
    state = made(LOCAL_METRIC, 1.0, **SUM_ON_READ)
    update = state.assign_add(size(f))
    return build_sum(state), update


def assigned(f, w):
    """Adds by `assign`, and reads through an identity."""
    state = made(LOCAL_METRIC, **SUM_ON_READ)
    return build_sum(state), state.assign(tf.identity(state) + size(f))


def added_twice(f, w):
    """Adds the same number to two variables."""
    number = size(f)
    both = [made(LOCAL_METRIC, **SUM_ON_READ) for _ in range(2)]
    update = tf.group([state.assign(state + number) for state in both])
    return build_sum(both[0]) + build_sum(both[1]), update


def running_mean(f, w):
    mean, count = made(), made()
    new_count = count + size(f)
    change = tf.reduce_sum(f["x"] - mean) / new_count
    with tf.control_dependencies([change, new_count]):
        update = tf.group(mean.assign_add(change), count.assign(new_count))
    return mean + 0, update


def of_another(f, w):
    """Reads the variables that `tf.compat.v1.metrics.mean` made."""
    value, update = V1.metrics.mean(f["x"])
    total = V1.get_collection(V1.GraphKeys.METRIC_VARIABLES)[-2]
    return tf.stack([value, tf.convert_to_tensor(total)]), update


def last_seen(f, w):
    state = made()
    return state, state.assign(f["x"][-1])


def in_branch(f, w):
    state = made()
    update = tf.cond(size(f) > 0, lambda: state.assign_add(size(f)), state.read_value)
    return state.read_value(), update


def in_function(f, w):
    state = made(LOCAL_METRIC, **SUM_ON_READ)

    @tf.function
    def update():
        return state.assign_add(size(f))

    return state.read_value(), update()


def capped(f, w):
    """Counts no more than 10."""
    state = made(LOCAL_METRIC, **SUM_ON_READ)
    update = state.assign_add(tf.minimum(size(f), 10 - state))
    return build_sum(state), update


def python_state(f, w):
    seen = []

    def count(x):
        if len(x) == 0:
            return np.float32(sum(seen))
        seen.append(len(x))
        return np.float32(0)

    update = V1.py_func(count, [f["x"]], tf.float32)
    return V1.py_func(count, [tf.zeros([0])], tf.float32), update


def python_addend(f, w, wrap=lambda function: function):
    """Adds what a Python function finds to be new."""
    seen = set()

    def count_new(labels):
        new = set(labels.tolist()) - seen
        seen.update(new)
        return np.float32(len(new))

    def in_a_loop(labels):
        return tf.numpy_function(count_new, [labels], tf.float32)

    @wrap
    def count_all(labels):
        return tf.map_fn(in_a_loop, labels[None], fn_output_signature=tf.float32)

    state = made(LOCAL_METRIC, **SUM_ON_READ)
    return build_sum(state), state.assign_add(tf.reduce_sum(count_all(f["label"])))


def distinct(f, w):
    """Counts the labels in a table."""
    state = tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, -1, checkpoint=False)
    return tf.cast(state.size(), tf.float32), state.insert(f["label"], f["label"])


class KerasMaximum(keras.metrics.Metric):
    def __init__(self):
        super().__init__(name="maximum")
        self.maximum = self.add_variable((), "zeros", name="maximum")

    def update_state(self, values):
        self.maximum.assign(tf.maximum(self.maximum.value, tf.reduce_max(values)))

    def result(self):
        return self.maximum.value


class TfKerasMaximum(tf_keras.metrics.Metric):
    def __init__(self):
        super().__init__("maximum")
        self.maximum = self.add_weight("maximum", (), initializer="zeros")

    def update_state(self, values):
        return self.maximum.assign(tf.maximum(self.maximum, tf.reduce_max(values)))

    def result(self):
        return tf.identity(self.maximum)


def updated(make):
    def metric(f, w):
        made = make()
        made.update_state(f["x"])
        return made

    return metric


def keras_as_pair(f, w):
    """What old programs did with Keras metrics; these sum over replicas by themselves."""
    mean = tf_keras.metrics.Mean()
    update = mean.update_state(f["x"])
    return mean.result(), update


def count(num):
    return num


def maximum(num):
    return max(DATA["x"][:num].max(), 0)


def mean(num):
    return DATA["x"][:num].mean(dtype=np.float64)


def mean_and_sum(num):
    return [mean(num), DATA["x"][:num].sum(dtype=np.float64)]


def num_labels(num):
    return len(set(DATA["label"][:num]))


# Name -> the metric, what it must be for so many examples.
BY_HAND = {
    "local": (counted(lambda: got(LOCAL)), count),
    "metric_variable": (counted(lambda: got(LOCAL_METRIC)), count),
    "get_local_variable": (
        counted(lambda: V1.get_local_variable("state", [], initializer=V1.zeros_initializer())),
        count,
    ),
    "local_sum_on_read": (counted(lambda: got(LOCAL, **SUM_ON_READ)), count),
    "variable": (counted(made), count),
    "variable_sum_on_read": (counted(lambda: made(LOCAL_METRIC, **SUM_ON_READ)), count),
    "merged": (merged, count),
    "from_one": (counted(lambda: made(LOCAL, 1.0, **SUM_ON_READ)), lambda num: num + 1),
    "merged_from_one": (merged_from_one, lambda num: num + 1),
    "merged_maximum": (merged_maximum, maximum),
    "assigned": (assigned, count),
    "added_twice": (added_twice, lambda num: 2 * num),
    "running_mean": (running_mean, mean),
    "of_another": (of_another, mean_and_sum),
    "last_seen": (last_seen, lambda num: DATA["x"][num - 1]),
    "in_branch": (in_branch, count),
    "in_function": (in_function, count),
    "capped": (capped, lambda num: min(num, 10)),
    "python_state": (python_state, count),
    "python_addend": (python_addend, num_labels),
    "python_in_functions": (functools.partial(python_addend, wrap=tf.function), num_labels),
    "distinct": (distinct, num_labels),
    "keras_maximum": (updated(KerasMaximum), maximum),
    "tf_keras_maximum": (updated(TfKerasMaximum), maximum),
    "keras_as_pair": (keras_as_pair, mean),
}


ON_ALL_REPLICAS = {
    *("merged", "local_sum_on_read", "variable_sum_on_read", "keras_as_pair"),
    *("assigned", "added_twice"),
}
HAND_CASES = [
    pytest.param(name, *case, marks=[] if case == (2, 7) else pytest.mark.full)
    for name in BY_HAND
    for case in itertools.product((1, 2, 3), (1, 7, NUM))
]


@pytest.mark.parametrize(("name", "replicas", "num"), HAND_CASES)
def test_a_metric_by_hand_counts_every_example(name, replicas, num, model_dir, caplog):
    metric, expected = BY_HAND[name]
    model_fn = make_model_fn(lambda features, w: {"it": metric(features, w)})
    with (
        est.Estimator(model_fn, model_dir, config(replicas)) as model,
        caplog.at_level(logging.WARNING, "estimator"),
    ):
        results = model.evaluate(make_input_fn(num))
        np.testing.assert_allclose(results["it"], expected(num), rtol=1e-5)
        assert results["loss"] == pytest.approx(mean_of_batches(num), rel=1e-5)
    is_on_one = replicas > 1 and name not in ON_ALL_REPLICAS
    assert caplog.text.count(f"on 1 replica instead of {replicas}: the metric 'it'") == is_on_one


@pytest.mark.parametrize("optimizer", [V1.train.AdamOptimizer, keras.optimizers.Adam])
def test_a_train_op_that_is_built_in_every_mode_keeps_no_replica_out(optimizer, tmp_path, caplog):
    """It changes the weights that a metric reads, and evaluation never runs it."""

    def model_fn(features, labels, mode):
        w = V1.get_variable("w", initializer=np.float32(3))
        loss = tf.reduce_mean(features["x"] * w)
        opt = est.CrossShardOptimizer(optimizer(0.1))
        train_op = opt.minimize(loss, V1.train.get_global_step())
        metrics = {"it": V1.metrics.mean(features["x"] * w)}
        return est.EstimatorSpec(mode, loss=loss, train_op=train_op, eval_metric_ops=metrics)

    with est.Estimator(model_fn, str(tmp_path), config(2)) as model:
        assert model.evaluate(make_input_fn(7))["it"] == pytest.approx(3 * DATA["x"][:7].mean())
    assert "on 1 replica" not in caplog.text


def mean_of_batches(num):
    return np.mean([3 * DATA["x"][i : min(i + BATCH, num)].mean() for i in range(0, num, BATCH)])


def test_a_step_on_one_replica_is_as_many_examples_as_it_was(model_dir, caplog):
    model_fn = make_model_fn(lambda features, w: {"count": counted(made)(features, w)})
    with est.Estimator(model_fn, model_dir, config(3)) as model:
        assert model.evaluate(make_input_fn(NUM), steps=2)["count"] == 2 * 3 * BATCH
        # Another kind of input needs another program, which is told of no more.
        other = model.evaluate(lambda: make_input_fn(NUM)().unbatch().batch(5, True))
    assert other["count"] == NUM
    assert caplog.text.count("on 1 replica") == 1


def test_what_an_evaluation_leaves_in_a_table_is_not_in_the_next(model_dir):
    model_fn = make_model_fn(lambda features, w: {"distinct": distinct(features, w)})
    with est.Estimator(model_fn, model_dir, config(1)) as model:
        for num in (NUM, 7, NUM):
            assert model.evaluate(make_input_fn(num))["distinct"] == num_labels(num)


def test_a_metric_that_a_checkpoint_holds_starts_at_its_value(tmp_path):
    """A global variable is the checkpoint's at the start of each evaluation."""

    def model_fn(features, labels, mode):
        total = V1.get_variable("total", initializer=np.float32(100), trainable=False)
        step = V1.train.get_global_step().assign_add(1)
        metrics = {"total": (total, total.assign_add(size(features)))}
        return est.EstimatorSpec(
            mode, loss=tf.constant(0.0), train_op=step, eval_metric_ops=metrics
        )

    with est.Estimator(model_fn, str(tmp_path), config(1)) as model:
        model.train(make_input_fn(8), steps=1)
        for num in (7, NUM, 7):
            assert model.evaluate(make_input_fn(num))["total"] == 100 + num
