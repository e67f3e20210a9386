"""What heads say to arguments, labels and weights that they cannot use."""

import numpy as np
import pytest
import tensorflow as tf

import estimator as est

LOGITS = {size: np.zeros([2, size], np.float32) for size in (1, 2, 3)}


def loss(head, labels, features=None):
    return lambda: head.loss(labels, LOGITS[head.logits_dimension], features=features)


BINARY = est.BinaryClassHead(name="top")
WEIGHTED = est.BinaryClassHead(weight_column="w")
WORDS = est.BinaryClassHead(label_vocabulary=["no", "yes"])
CLASSES = est.MultiClassHead(3)
LABELS = est.MultiLabelHead(3, label_vocabulary=["ant", "bee", "cat"])
NUMBERS = est.RegressionHead(2)
SUM = est.MultiClassHead(3, loss_reduction="sum", name="sum")

# What is called, and parts of what the error says.
CASES = {
    # Arguments.
    "two classes": (lambda: est.MultiClassHead(2), "`n_classes` (2)", "use a BinaryClassHead"),
    "one label": (lambda: est.MultiLabelHead(1), "`n_classes` (1) must be at least 2"),
    "classes are no number": (lambda: est.MultiClassHead("3"), "`n_classes` ('3')", "integer"),
    "no outputs": (lambda: est.RegressionHead(0), "`label_dimension` (0) must be at least 1"),
    "vocabulary is a string": (
        lambda: est.BinaryClassHead(label_vocabulary="ab"),
        "`label_vocabulary` ('ab') must be a list of strings",
    ),
    "vocabulary of another size": (
        lambda: est.MultiClassHead(3, label_vocabulary=["a"]),
        "`label_vocabulary` (['a']) has 1 labels",
        "3 classes",
    ),
    "vocabulary repeats": (
        lambda: est.BinaryClassHead(label_vocabulary=["a", "a"]),
        "must not repeat a label",
    ),
    "threshold": (lambda: est.BinaryClassHead(thresholds=[0.5, 1.0]), "`thresholds` holds 1.0"),
    "one threshold": (lambda: est.BinaryClassHead(thresholds=0.5), "`thresholds` (0.5)", "list"),
    "threshold is zero": (lambda: est.BinaryClassHead(thresholds=0), "`thresholds` (0) must be"),
    "reduction": (
        lambda: est.BinaryClassHead(loss_reduction="summ"),
        "`loss_reduction` ('summ') is unknown. Did you mean 'sum'?",
    ),
    "no reduction": (lambda: est.BinaryClassHead(loss_reduction="none"), "('none') is unknown"),
    "weights": (lambda: est.BinaryClassHead(weight_column=3), "`weight_column` (3) must be"),
    "loss_fn": (
        lambda: est.BinaryClassHead(loss_fn=lambda labels, x: x),
        "`loss_fn` must take `labels` and `logits`",
        "it takes labels, x",
    ),
    "loss_fn needs more": (
        lambda: est.BinaryClassHead(loss_fn=lambda labels, logits, x: x),
        "`loss_fn` takes unknown arguments (x)",
    ),
    "loss_fn is no function": (lambda: est.BinaryClassHead(loss_fn=3), "`loss_fn` (3) must be"),
    "inverse_link_fn": (
        lambda: est.RegressionHead(inverse_link_fn="exp"),
        "`inverse_link_fn` ('exp') must be a function",
    ),
    "class of metrics": (
        lambda: est.MultiLabelHead(3, classes_for_class_based_metrics=[3]),
        "`classes_for_class_based_metrics` has 3",
        "below `n_classes` (3)",
    ),
    "word of metrics": (
        lambda: est.MultiLabelHead(
            2, label_vocabulary=["ant", "bee"], classes_for_class_based_metrics=["be"]
        ),
        "has 'be', not in `label_vocabulary`. Did you mean 'bee'?",
    ),
    "classes of metrics are no list": (
        lambda: est.MultiLabelHead(3, classes_for_class_based_metrics=1),
        "`classes_for_class_based_metrics` (1) must be a list",
    ),
    "name": (lambda: est.BinaryClassHead(name=3), "`name` (3) must be a string"),
    "name with a space": (
        lambda: est.BinaryClassHead(name="my head"),
        "`name` ('my head') must be a name scope",
    ),
    "full loss": (
        lambda: est.PoissonRegressionHead(compute_full_loss="yes"),
        "`compute_full_loss` ('yes') must be True or False",
    ),
    "no heads": (lambda: est.MultiHead([]), "`heads` ([]) must be a list"),
    "no head": (lambda: est.MultiHead(["top"]), "`heads` holds 'top', which is not"),
    "a head without name": (lambda: est.MultiHead([CLASSES]), "Give each head a `name`"),
    "names repeat": (lambda: est.MultiHead([BINARY, BINARY]), "['top', 'top'], which must all"),
    "reductions differ": (
        lambda: est.MultiHead([BINARY, SUM]).loss_reduction,
        "loss reductions ['sum', 'sum_over_batch_size']",
    ),
    "head weights": (
        lambda: est.MultiHead([BINARY], [1.0, 2.0]),
        "`head_weights` ([1.0, 2.0])",
        "1 heads",
    ),
    "head weights are no list": (
        lambda: est.MultiHead([BINARY], 2.0),
        "`head_weights` (2.0) must be a list",
    ),
    # Labels.
    "no labels": (loss(BINARY, None), "BinaryClassHead 'top': there are no labels"),
    "labels above": (
        loss(BINARY, [[1.0], [7.0]]),
        "BinaryClassHead 'top': labels must be in [0, 1]",
        "7.0",
    ),
    "labels below": (loss(BINARY, [-1, -2]), "BinaryClassHead 'top'", "-1"),
    "labels not finite": (loss(NUMBERS, [[1.0, 2.0], [3.0, np.nan]]), "must be finite", "nan"),
    "labels of logistic": (loss(est.LogisticRegressionHead(), [0.5, 1.5]), "in [0, 1]", "1.5"),
    "labels of poisson": (
        loss(est.PoissonRegressionHead(), [0.5, -1.5]),
        "PoissonRegressionHead: labels must be finite and not negative",
        "-1.5",
    ),
    "infinite labels of poisson": (
        loss(est.PoissonRegressionHead(), [0.5, np.inf]),
        "labels must be finite and not negative; the first that is not: inf",
    ),
    "class ids": (
        loss(CLASSES, [2, 3]),
        "MultiClassHead: labels must be ids of classes in [0, 3); the first that is not",
        "3",
    ),
    "class ids are floats": (loss(CLASSES, [1.0, 2.0]), "labels are float32", "tf.cast"),
    "class ids are words": (loss(CLASSES, ["a", "b"]), "labels are strings", "label_vocabulary"),
    "sparse labels of another rank": (
        loss(est.MultiLabelHead(3), tf.sparse.from_dense([1, 2])),
        "sparse labels have shape (2,) and logits (2, 3); they must have the same rank",
    ),
    "words are ids": (loss(WORDS, [1, 0]), "labels are int32; with a `label_vocabulary`"),
    "unknown word": (loss(WORDS, ["yes", "maybe"]), "in the `label_vocabulary`", "maybe"),
    "dense words": (
        loss(LABELS, [["ant", "bee", "cat"], ["ant", "cat", "cat"]]),
        "labels are strings; they must be numbers. Pass the names of classes as a sparse or ragged",
    ),
    "unknown sparse word": (
        loss(LABELS, tf.sparse.from_dense([["ant", "bee"], ["dog", "cat"]])),
        "MultiLabelHead: labels must be in the `label_vocabulary`",
        "dog",
    ),
    "sparse id": (
        loss(est.MultiLabelHead(3), tf.ragged.constant([[1, 2], [4]])),
        "ids of classes in [0, 3)",
        "4",
    ),
    "not hot": (loss(LABELS, [[0, 1, 2], [0, 0, 0]]), "dense labels must be 0 or 1", "2"),
    "hot floats": (loss(LABELS, [[0.5, 1, 0]] * 2), "dense labels must be integers"),
    "sparse class": (
        loss(CLASSES, tf.sparse.from_dense([[1], [2]])),
        "labels are a SparseTensor; they must be dense",
        "MultiLabelHead",
    ),
    "labels are a dict": (loss(CLASSES, {"a": [1, 2]}), "labels are a dict (['a'])", "MultiHead"),
    "labels of another shape": (
        loss(NUMBERS, [1.0, 2.0]),
        "RegressionHead: labels have shape (2,) and logits (2, 2)",
        "must have shape (2, 2)",
    ),
    "labels of another size": (loss(CLASSES, [1, 2, 0]), "(3,)", "(2,) or (2, 1)"),
    "labels of one head": (
        lambda: est.MultiHead([BINARY]).loss([[1], [0]], LOGITS[1]),
        "must be a dict with a tensor for each of the heads ['top']",
    ),
    # Logits, weights and the rest.
    "logits": (lambda: CLASSES.predictions(LOGITS[2]), "`logits` have shape (2, 2)", "3]"),
    "integer logits": (lambda: CLASSES.predictions([[1, 2, 3]]), "`logits` are int32"),
    "logits of heads": (
        lambda: est.MultiHead([BINARY]).predictions(LOGITS[2]),
        "`logits` have shape (2, 2); the last dimension must be 1",
    ),
    "key": (
        lambda: CLASSES.predictions(LOGITS[3], keys=["class_id"]),
        "'class_id', which is no prediction of MultiClassHead. Did you mean 'class_ids'?",
    ),
    "key of a head": (
        lambda: est.MultiHead([BINARY]).predictions(LOGITS[1], keys=[("top", "class_id")]),
        "`keys` has ('top', 'class_id'), which is no prediction of MultiHead 'top'. Use one of "
        "('top', 'logits'), ",
    ),
    "sparse weights": (
        loss(WEIGHTED, [1, 0], {"w": tf.sparse.from_dense([[1.0], [2.0]])}),
        "the weights, feature 'w', must be a dense tensor",
    ),
    "missing weights": (
        loss(WEIGHTED, [1, 0], {"x": 1}),
        "`weight_column` ('w') is not among the features (['x'])",
    ),
    "negative weights": (
        loss(WEIGHTED, [1, 0], {"w": [1.0, -2.0]}),
        "weights, feature 'w', must be at least 0; the first that is not: -2.0",
    ),
    "weights of another shape": (
        loss(WEIGHTED, [1, 0], {"w": [1.0, 2.0, 3.0]}),
        "have shape (3,) and logits (2, 1)",
        "(2,) or (2, 1)",
    ),
    "one weight": (
        loss(WEIGHTED, [1, 0], {"w": 2.0}),
        "have shape () and logits (2, 1), so they must have shape (2,) or (2, 1)",
    ),
    "weights are words": (loss(WEIGHTED, [1, 0], {"w": ["a", "b"]}), "are string, not numbers"),
    "losses are reduced": (
        loss(est.BinaryClassHead(loss_fn=lambda labels, logits: tf.reduce_sum(logits)), [1, 0]),
        "returned losses of shape ()",
        "do not reduce them",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_an_error_names_the_head_the_value_and_the_rule(name):
    call, *parts = CASES[name]
    with pytest.raises(ValueError) as info:  # noqa: PT011 - the parts are the match
        call()
    for part in parts:
        assert part in str(info.value)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint32, np.int64])
def test_class_ids_may_be_of_any_integer_type(dtype):
    labels = np.array([2, 1], dtype)
    assert float(CLASSES.loss(labels, LOGITS[3])) == pytest.approx(np.log(3))


@pytest.mark.parametrize("shape", [[2], [2, 1], None])
def test_labels_and_weights_may_have_an_unknown_shape(shape):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        labels, weights = (
            tf.compat.v1.placeholder_with_default(np.reshape(x, shape or [2, 1]), shape)
            for x in (np.float32([1, 0]), np.float32([3, 1]))
        )
        logits = tf.constant([[0.5], [0.25]])
        found = session.run(WEIGHTED.loss(labels, logits, {"w": weights}))
    losses = [-np.log(1 / (1 + np.exp(-0.5))), -np.log(1 - 1 / (1 + np.exp(-0.25)))]
    assert found == pytest.approx(np.average(losses, weights=[3, 1]) * 2, rel=1e-6)


@pytest.fixture(params=["v1", "v2"])
def tensor_shapes(request):
    """Both kinds of shapes; after `tf.disable_v2_behavior()`, dimensions are objects."""
    if request.param == "v1":
        tf.compat.v1.disable_v2_tensorshape()
    yield
    tf.compat.v1.enable_v2_tensorshape()


@pytest.mark.parametrize(
    ("head", "size"),
    [(BINARY, 1), (CLASSES, 3), (est.MultiLabelHead(3), 3)],
    ids=["binary", "classes", "labels"],
)
@pytest.mark.usefixtures("tensor_shapes")
def test_logits_of_an_unknown_size_are_predicted_and_exported(head, size):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        logits = tf.compat.v1.placeholder_with_default(LOGITS[size], [None, None])
        made = head.create_estimator_spec({}, "infer", logits)
        output = made.export_outputs["serving_default"]
        names, scores = session.run([output.classes, output.scores])
    assert names.shape == scores.shape == (2, max(size, 2))


def test_predictions_are_those_of_the_keys():
    assert list(CLASSES.predictions(LOGITS[3], keys=["logits"])) == ["logits"]
    both = est.MultiHead([BINARY, est.MultiClassHead(3, name="three")])
    keys = [("three", "class_ids"), ("top", "logistic")]
    logits = {"top": np.float32([[0.0]]), "three": np.float32([[1, 3, 2]])}
    for given in (logits, np.float32([[0, 1, 3, 2]])):
        found = both.predictions(given, keys)
        assert [found[key].numpy().item() for key in keys] == [1, 0.5]
        assert len(found) == 2


def test_arrays_may_stand_for_lists():
    head = est.BinaryClassHead(thresholds=np.array([0.25, 0.5]))
    assert "accuracy/positive_threshold_0.25" in head.metrics()
    by_class = est.MultiLabelHead(3, classes_for_class_based_metrics=np.array([0, 2]))
    assert {"auc/class0", "auc/class2"} <= set(by_class.metrics())
    words = ["ant", "bee"]
    by_word = est.MultiLabelHead(2, label_vocabulary=words, classes_for_class_based_metrics=[1])
    assert "auc/bee" in by_word.metrics()
    both = est.MultiHead([BINARY], head_weights=np.array([2.0]))
    assert float(both.loss({"top": [1, 0]}, LOGITS[1])) == pytest.approx(2 * np.log(2))


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("head", [BINARY, est.MultiHead([BINARY])], ids=["one", "several"])
def test_an_empty_list_of_regularization_losses_is_none(head, mode):
    """As `tf.compat.v1.losses.get_regularization_losses()` returns it."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        labels = tf.constant([1, 0])
        made = head.create_estimator_spec(
            {},
            mode,
            tf.constant(LOGITS[1]),
            labels if head is BINARY else {"top": labels},
            train_op_fn=lambda loss: tf.no_op(),
            regularization_losses=[],
        )
        assert session.run(made.loss) == pytest.approx(np.log(2))
    assert not [key for key in made.eval_metric_ops if "regularization" in key]


def spec(graph_labels, **kwargs):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        labels = tf.constant(graph_labels)
        given = {"features": {}, "mode": "train", "logits": tf.constant(LOGITS[3]), **kwargs}
        made = CLASSES.create_estimator_spec(labels=labels, **given)
        return session.run(made.loss)


def test_labels_in_a_graph_are_checked_when_it_runs():
    message = r"MultiClassHead: labels must be ids of classes in \[0, 3\).*\n?.*\[7\]"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        spec([1, 7], train_op_fn=lambda loss: tf.no_op())


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({}, "exactly one of `optimizer` and `train_op_fn`; neither is given"),
        (
            {"optimizer": tf.compat.v1.train.AdamOptimizer(), "train_op_fn": lambda loss: loss},
            "both are given",
        ),
        ({"optimizer": "Adam"}, "`optimizer` \\('Adam'\\) must be a Keras optimizer"),
        ({"train_op_fn": 3}, "`train_op_fn` \\(3\\) must be a function"),
        ({"mode": "training"}, "`mode` \\('training'\\) is unknown. Did you mean 'train'"),
        (
            {"optimizer": tf.compat.v1.train.AdamOptimizer()},
            "The graph has no trainable variables: there is nothing to train",
        ),
        (
            {"optimizer": tf.compat.v1.train.AdamOptimizer(), "trainable_variables": []},
            "`trainable_variables` is empty",
        ),
    ],
)
def test_training_needs_one_optimizer_and_variables(kwargs, message):
    with pytest.raises(ValueError, match=message):
        spec([1, 2], **kwargs)
