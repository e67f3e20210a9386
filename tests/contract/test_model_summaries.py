"""What ready-made models record while they train: tags, kinds and values."""

import os

import numpy as np
import pytest

from tests.contract.names import est, events, mean_model_fn, steps_of, tf, v1, v1est

FC = tf.feature_column
FORMS = {"v2": est, "v1": v1est}
FEATURES = {
    "x": np.float32([[1, 2], [3, -4], [0, 5], [6, 1]]),
    "id": np.int64([[0], [1], [2], [1]]),
    "weight": np.float32([[1], [2], [3], [0]]),
    "key": np.array(["a", "b", "c", "d"]),
}
LABELS = {
    "two": np.int64([[0], [1], [1], [0]]),
    "three": np.int64([[0], [1], [2], [0]]),
    "number": np.float32([[1], [2], [3], [4]]),
}
LABELS["all"] = {"a": LABELS["two"], "b": LABELS["number"]}
IDS = FC.categorical_column_with_identity("id", 4)
WIDE = [FC.numeric_column("x", [2]), IDS]
DEEP = [FC.numeric_column("x", [2]), FC.indicator_column(IDS)]
BOTH = {
    "linear_feature_columns": WIDE,
    "dnn_feature_columns": DEEP,
    "dnn_hidden_units": [4, 3],
}


def heads():
    return est.MultiHead([est.BinaryClassHead(name="a"), est.RegressionHead(name="b")])


def trained(make, label, model_dir):
    """The model after two steps, which are both recorded."""
    model = make(model_dir=os.fspath(model_dir), config=est.RunConfig(save_summary_steps=1))
    model.train(lambda: tf.data.Dataset.from_tensors((FEATURES, LABELS[label])).repeat(), steps=2)
    return model


def recorded(model_dir):
    """By tag, (step, number or None for a histogram) of each value in the event files."""
    found = {}
    for step, tag, value in events(model_dir):
        if tag != "global_step/sec":
            number = None if value.HasField("histo") else value.simple_value
            found.setdefault(tag, []).append((step, number))
    return found


def kinds(model_dir):
    """By tag, whether it has numbers or histograms; each is recorded once a step."""
    found = recorded(model_dir)
    assert {tag: [step for step, _ in values] for tag, values in found.items()} == {
        tag: [1, 2] for tag in found
    }
    return {tag: "histogram" if values[0][1] is None else "number" for tag, values in found.items()}


def of_layers(*names):
    return {f"{name}/activation": "histogram" for name in names} | {
        f"{name}/fraction_of_zero_values": "number" for name in names
    }


LAYERS = ("hiddenlayer_0", "hiddenlayer_1", "logits")
# Of each form: the parts of a model, and what the head adds to the loss.
PARTS = {
    "v2": {
        "baseline": {},
        "linear": {"bias": "number", "fraction_of_zero_weights": "number"},
        "linear_3": {"bias": "histogram", "fraction_of_zero_weights": "number"},
        "dnn": of_layers(*(f"dnn/{layer}" for layer in LAYERS)),
        "wide": of_layers("linear"),
        "head": {"loss": "number"},
    },
    "v1": {
        "baseline": {},
        "linear": {"linear/bias": "number", "linear/fraction_of_zero_weights": "number"},
        "linear_3": {"linear/bias": "histogram", "linear/fraction_of_zero_weights": "number"},
        "dnn": of_layers(*(f"dnn/dnn/{layer}" for layer in LAYERS)),
        "wide": of_layers("linear/linear"),
        "head": {"loss": "number", "average_loss": "number"},
    },
}
# The class, its arguments, the labels, and the parts that add summaries.
MODELS = {
    "baseline": ("BaselineClassifier", {}, "two", ["baseline"]),
    "linear": ("LinearClassifier", {"feature_columns": WIDE}, "two", ["linear"]),
    "linear_3": (
        "LinearClassifier",
        {"feature_columns": WIDE, "n_classes": 3},
        "three",
        ["linear_3"],
    ),
    "linear_numbers": ("LinearRegressor", {"feature_columns": WIDE}, "number", ["linear"]),
    "dnn": ("DNNClassifier", {"hidden_units": [4, 3], "feature_columns": DEEP}, "two", ["dnn"]),
    "dnn_batch_norm": (
        "DNNRegressor",
        {"hidden_units": [4, 3], "feature_columns": DEEP, "batch_norm": True, "dropout": 0.5},
        "number",
        ["dnn"],
    ),
    "both": ("DNNLinearCombinedClassifier", BOTH, "two", ["dnn", "linear", "wide"]),
    "wide": (
        "DNNLinearCombinedRegressor",
        {"linear_feature_columns": WIDE},
        "number",
        ["linear", "wide"],
    ),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", MODELS)
def test_tags_and_kinds(name, form, tmp_path):
    model, arguments, label, parts = MODELS[name]
    trained(
        lambda **kwargs: getattr(FORMS[form], model)(**arguments, **kwargs),
        label,
        tmp_path,
    )
    expected = dict(PARTS[form]["head"])
    for part in parts:
        expected |= PARTS[form][part]
    assert kinds(tmp_path) == expected


@pytest.mark.parametrize("form", FORMS)
def test_tags_with_several_heads(form, tmp_path):
    make = FORMS[form].DNNLinearCombinedEstimator
    trained(lambda **kwargs: make(heads(), **BOTH, **kwargs), "all", tmp_path)
    parts = PARTS[form]
    losses = dict.fromkeys(("loss", "loss/a", "loss/b"), "number")
    assert kinds(tmp_path) == parts["dnn"] | parts["linear_3"] | parts["wide"] | losses


def test_a_named_head_has_a_loss_of_its_own(tmp_path):
    head = est.RegressionHead(name="mine")
    trained(lambda **kwargs: est.LinearEstimator(head, WIDE, **kwargs), "number", tmp_path)
    found = recorded(tmp_path)
    assert found["loss"] == found["loss/mine"]
    assert [step for step, _ in found["loss"]] == [1, 2]


@pytest.mark.parametrize("reduction", [v1.losses.Reduction.SUM, v1.losses.Reduction.MEAN])
def test_the_average_loss_of_v1_is_recorded_for_a_sum_alone(reduction, tmp_path):
    trained(
        lambda **kwargs: v1est.LinearRegressor(
            WIDE, weight_column="weight", loss_reduction=reduction, **kwargs
        ),
        "number",
        tmp_path,
    )
    found = recorded(tmp_path)
    if reduction != v1.losses.Reduction.SUM:
        assert "average_loss" not in found
        return
    # The squares of 1, 2, 3 and 4 have the weights 1, 2, 3 and 0.
    assert [found[tag][0] for tag in ("loss", "average_loss")] == [(1, 36), (1, 6)]


def test_weights_that_are_zero_are_counted_in_all_variables_but_the_bias(tmp_path):
    embedded = FC.embedding_column(IDS, 2, initializer=v1.constant_initializer(0.5))
    columns = [embedded, FC.numeric_column("x", [2])]
    model = trained(lambda **kwargs: est.LinearRegressor(columns, **kwargs), "number", tmp_path)
    found = recorded(tmp_path)
    # Of 4 x 2 numbers that are embedded, and weights for 2 of those and 2 others.
    assert found["fraction_of_zero_weights"][0] == (1, pytest.approx(4 / 12))
    assert found["bias"][0] == (1, 0)
    assert found["bias"][1][1] != model.get_variable_value("linear/linear_model/bias_weights")[0]


def rnn_batches():
    ids = tf.sparse.from_dense(np.int64([[1, 2], [2, 0], [1, 1], [2, 2]]))
    return tf.data.Dataset.from_tensors(({"id": ids}, LABELS["two"])).repeat()


def test_tags_of_recurrent_models(tmp_path):
    column = FC.indicator_column(FC.sequence_categorical_column_with_identity("id", 3))
    model = est.experimental.RNNClassifier(
        [column],
        units=[3],
        model_dir=os.fspath(tmp_path),
        config=est.RunConfig(save_summary_steps=1),
    )
    model.train(rnn_batches, steps=2)
    lengths = "rnn_model/sequence_input_layer/sequence_length"
    assert kinds(tmp_path) == {"loss": "number", lengths: "histogram"}


def own_loss_model_fn(features, labels, mode):
    del labels
    weight = v1.get_variable("weight", initializer=2.0)
    loss = weight * tf.reduce_mean(features["x"])
    v1.summary.scalar("loss", tf.constant(7.0))
    step = v1.train.get_global_step()
    train_op = v1.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=step)
    return est.EstimatorSpec(mode, loss=loss, train_op=train_op)


def test_a_models_own_summary_of_its_loss_is_the_only_one(tmp_path):
    trained(lambda **kwargs: est.Estimator(own_loss_model_fn, **kwargs), "two", tmp_path)
    assert recorded(tmp_path) == {"loss": [(1, 7), (2, 7)]}


def logit_model_fn(features, labels, mode, params):
    wide = v1est.experimental.linear_logit_fn_builder(1, WIDE)
    deep = v1est.experimental.dnn_logit_fn_builder(1, [4, 3], DEEP, tf.nn.relu, None, None, False)
    with v1.variable_scope("top"):
        logits = wide(features) + deep(features, mode)
    loss = tf.reduce_mean((logits - tf.cast(labels, tf.float32)) ** 2)
    step = v1.train.get_global_step()
    train_op = v1.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=step)
    return est.EstimatorSpec(mode, loss=loss, train_op=train_op)


def test_tags_of_logit_fns_begin_with_the_scope_of_the_caller(tmp_path):
    trained(lambda **kwargs: est.Estimator(logit_model_fn, **kwargs), "two", tmp_path)
    wide = {"top/bias": "number", "top/fraction_of_zero_weights": "number"}
    layers = of_layers(*(f"top/top/{layer}" for layer in LAYERS))
    assert kinds(tmp_path) == wide | layers | {"loss": "number"}


# --- What differs ---------------------------------------------------------------------------------

SDCA_TAGS = {"linear/approximate_duality_gap", "linear/examples_seen"}


def tags_of_sdca(model_dir):
    optimizer = est.experimental.LinearSDCA("key")
    trained(
        lambda **kwargs: v1est.LinearClassifier(WIDE, optimizer=optimizer, **kwargs),
        "two",
        model_dir,
    )
    found = set(kinds(model_dir))
    assert {*PARTS["v1"]["linear"], *PARTS["v1"]["head"]} == found - SDCA_TAGS
    return found


@pytest.mark.only_2_15("progress of LinearSDCA")
def test_progress_of_sdca_is_recorded(tmp_path):
    assert tags_of_sdca(tmp_path) >= SDCA_TAGS


@pytest.mark.only_here("progress of LinearSDCA")
def test_progress_of_sdca_is_not_recorded(tmp_path):
    assert not tags_of_sdca(tmp_path) & SDCA_TAGS


def area_of_a_constant(model_dir):
    """The area under precision and recall of a model that gives all examples the same number."""
    model = trained(v1est.BaselineClassifier, "two", model_dir)
    batches = tf.data.Dataset.from_tensors
    return model.evaluate(lambda: batches((FEATURES, LABELS["two"])))["auc_precision_recall"]


@pytest.mark.only_2_15("area under precision and recall in models of v1")
def test_the_area_of_a_constant_of_v1_is_too_large(tmp_path):
    assert area_of_a_constant(tmp_path) == pytest.approx(0.75, abs=1e-3)


@pytest.mark.only_here("area under precision and recall in models of v1")
def test_the_area_of_a_constant_of_v1_is_the_share_of_positives(tmp_path):
    assert area_of_a_constant(tmp_path) == pytest.approx(0.5, abs=1e-3)


def own_summary_op_model_fn(features, labels, mode):
    spec = own_loss_model_fn(features, labels, mode)
    scaffold = v1.train.Scaffold(summary_op=v1.summary.scalar("only", 5.0))
    return spec._replace(scaffold=scaffold)


def recorded_by_own_summary_op(model_dir):
    trained(lambda **kwargs: est.Estimator(own_summary_op_model_fn, **kwargs), "two", model_dir)
    return recorded(model_dir)


@pytest.mark.only_2_15("the loss beside a summary_op")
def test_a_summary_op_of_a_scaffold_is_all_that_is_recorded(tmp_path):
    assert recorded_by_own_summary_op(tmp_path) == {"only": [(1, 5), (2, 5)]}


@pytest.mark.only_here("the loss beside a summary_op")
def test_the_loss_is_recorded_beside_a_summary_op_of_a_scaffold(tmp_path):
    found = recorded_by_own_summary_op(tmp_path)
    assert found["only"] == [(1, 5), (2, 5)]
    assert [step for step, _ in found.pop("loss")] == [1, 2]
    assert set(found) == {"only"}


def tags_of_a_named_loss(model_dir):
    def model_fn(features, labels, mode):
        spec = mean_model_fn(features, labels, mode)
        return spec._replace(loss=tf.identity(spec.loss, name="loss"))

    trained(lambda **kwargs: est.Estimator(model_fn, **kwargs), "two", model_dir)
    return {tag for tag in recorded(model_dir) if tag.startswith("loss")}


@pytest.mark.only_2_15("the tag of the loss")
def test_an_op_of_its_name_gives_the_loss_another_tag(tmp_path):
    assert tags_of_a_named_loss(tmp_path) == {"loss_1"}


@pytest.mark.only_here("the tag of the loss")
def test_an_op_of_its_name_leaves_the_loss_its_tag(tmp_path):
    assert tags_of_a_named_loss(tmp_path) == {"loss"}


# --- tf.summary with a writer of the model's own -------------------------------------------------


class Opening(est.SessionRunHook):
    """Opens a writer, which TensorFlow 2.15 leaves to the program."""

    def __init__(self, writer):
        self.writer = writer

    def begin(self):
        self.initializer, self.flush = self.writer.init(), self.writer.flush()

    def after_create_session(self, session, coord):
        session.run(self.initializer)

    def end(self, session):
        session.run(self.flush)


def writing_model_fn(directory, is_in_train_op):
    def model_fn(features, labels, mode):
        spec = mean_model_fn(features, labels, mode)
        writer = tf.summary.create_file_writer(directory)
        with writer.as_default(step=tf.constant(0, tf.int64)):
            tf.summary.scalar("mine", spec.loss)
        ops = v1.summary.all_v2_summary_ops() if is_in_train_op else []
        train_op = tf.group(spec.train_op, *ops)
        return spec._replace(train_op=train_op, training_hooks=[Opening(writer)])

    return model_fn


def num_written(tmp_path, is_in_train_op):
    model_fn = writing_model_fn(os.fspath(tmp_path / "own"), is_in_train_op)
    config = est.RunConfig(save_summary_steps=3)
    model = est.Estimator(model_fn, os.fspath(tmp_path / "model"), config)
    model.train(lambda: tf.data.Dataset.from_tensors({"x": [1.0]}).repeat(), steps=6)
    return len(steps_of(os.fspath(tmp_path / "own"), "mine"))


def test_tf_summary_in_the_train_op_writes_in_each_step(tmp_path):
    assert num_written(tmp_path, is_in_train_op=True) == 6


@pytest.mark.only_2_15("tf.summary outside of the train_op")
def test_tf_summary_outside_of_the_train_op_is_never_run(tmp_path):
    assert num_written(tmp_path, is_in_train_op=False) == 0


@pytest.mark.only_here("tf.summary outside of the train_op")
def test_tf_summary_outside_of_the_train_op_is_run_when_summaries_are_recorded(tmp_path):
    assert num_written(tmp_path, is_in_train_op=False) == 3
