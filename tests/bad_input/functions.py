"""Rows for `test_bad_input`: functions beside the verbs, and subclasses."""

from __future__ import annotations

import datetime

import numpy as np
import pandas as pd
import tensorflow as tf

import estimator as est
from tests.bad_input.stage import batches, linear, model_returning

X = np.ones([4, 2], np.float32)
FRAME = pd.DataFrame({"a": [1, 2], "b": [3.0, 4.0]}, index=[5, 6])
COLUMNS = [tf.feature_column.numeric_column("age")]


def _arrays(x=X, y=None, **arguments):
    arguments.setdefault("shuffle", True)
    return lambda s: est.inputs.numpy_input_fn(x, y, **arguments)


def _frames(x=FRAME, y=None, **arguments):
    arguments.setdefault("shuffle", True)
    return lambda s: est.inputs.pandas_input_fn(x, y, **arguments)


def _spec(feature_columns=COLUMNS, label_key="label", **arguments):
    return lambda s: est.classifier_parse_example_spec(feature_columns, label_key, **arguments)


def _regressor_spec(**arguments):
    return lambda s: est.regressor_parse_example_spec(COLUMNS, "label", **arguments)


def _subclass(base, **members):
    return lambda s: type("Mine", (base,), members)(linear, s.model_dir)


NUMPY_INPUT = {
    "numpy: shuffle is not given": (
        _arrays(shuffle=None),
        ValueError,
        "`shuffle` (None) must be True or False. Say which: True to train",
    ),
    "numpy: shuffle is a number": (
        _arrays(shuffle=1),
        ValueError,
        "`shuffle` (1) must be True or False",
    ),
    "numpy: x is a list": (
        _arrays([1, 2]),
        TypeError,
        "`x` (list) must be a NumPy array or a dict of them. Convert it with np.asarray",
    ),
    "numpy: x is empty": (
        _arrays(X[:0]),
        ValueError,
        "`x` must not be empty: it has no rows",
    ),
    "numpy: x is an empty dict": (
        _arrays({}),
        ValueError,
        "`x` ({}) must not be empty. Name a feature",
    ),
    "numpy: a feature is a list": (
        _arrays({"a": X, "b": [1, 2]}),
        TypeError,
        "`x['b']` (list) must be a NumPy array",
    ),
    "numpy: a feature has no rows to take": (
        _arrays({"a": np.array(3.0)}),
        ValueError,
        "`x['a']` (array(3.)) must have a first dimension",
    ),
    "numpy: features of different lengths": (
        _arrays({"a": X, "b": X[:3]}),
        ValueError,
        "`x` and `y` must have equally many rows ... `x['a']`: (4, 2), `x['b']`: (3, 2)",
    ),
    "numpy: fewer labels than features": (
        _arrays(X, X[:3, 0]),
        ValueError,
        "`x` and `y` must have equally many rows ... `x`: (4, 2), `y`: (3,)",
    ),
    "numpy: y is a list": (
        _arrays(X, [1, 2, 3, 4]),
        TypeError,
        "`y` (list) must be a NumPy array",
    ),
    "numpy: y is an empty dict": (
        _arrays(X, {}),
        ValueError,
        "`y` ({}) must not be empty. Leave it out if there are no labels",
    ),
    "numpy: a name is a feature's and a label's": (
        _arrays({"a": X, "b": X}, {"a": X}),
        ValueError,
        "`x` and `y` both have 'a'. Rename one of the two",
    ),
    "numpy: objects that are no strings": (
        _arrays(np.array(["a", 1], object)),
        TypeError,
        "`x` has missing values, values of different types, or other objects than strings. Convert",
    ),
    "numpy: dates": (
        _arrays(np.array([datetime.date(2020, 1, 1)], "datetime64[D]")),
        TypeError,
        "`x` has the dtype datetime64[D], which TensorFlow does not support. Convert it",
    ),
    "numpy: batch_size is zero": (
        _arrays(batch_size=0),
        ValueError,
        "`batch_size` (0) must be at least 1",
    ),
    "numpy: batch_size is a float": (
        _arrays(batch_size=2.0),
        TypeError,
        "`batch_size` (2.0) must be an integer",
    ),
    "numpy: num_epochs is zero": (
        _arrays(num_epochs=0),
        ValueError,
        "`num_epochs` (0) must be at least 1",
    ),
    "numpy: num_threads is zero": (
        _arrays(num_threads=0),
        ValueError,
        "`num_threads` (0) must be at least 1",
    ),
    "numpy: queue_capacity is negative": (
        _arrays(queue_capacity=-1),
        ValueError,
        "`queue_capacity` (-1) must be at least 1",
    ),
}

PANDAS_INPUT = {
    "pandas: shuffle is not given": (
        _frames(shuffle=None),
        ValueError,
        "`shuffle` (None) must be True or False",
    ),
    "pandas: x is an array": (
        _frames(X),
        TypeError,
        "`x` (ndarray) must be a pandas DataFrame. For arrays use numpy_input_fn",
    ),
    "pandas: x is a series": (
        _frames(FRAME["a"]),
        TypeError,
        "`x` (Series) must be a pandas DataFrame",
    ),
    "pandas: x has no columns": (
        _frames(FRAME[[]]),
        ValueError,
        "`x` must not be empty: it has no columns",
    ),
    "pandas: x has no rows": (
        _frames(FRAME[:0]),
        ValueError,
        "`x` must not be empty: it has no rows",
    ),
    "pandas: a column twice": (
        _frames(FRAME[["a", "a"]]),
        ValueError,
        "`x` has a column twice: ['a', 'a']. Rename one",
    ),
    "pandas: y is a list": (
        _frames(FRAME, [1, 2]),
        TypeError,
        "`y` (list) must be a pandas Series or DataFrame",
    ),
    "pandas: another index": (
        _frames(FRAME, pd.Series([1, 2])),
        ValueError,
        "`x` and `y` must have the same index ... reset_index(drop=True)",
    ),
    "pandas: the target's name is a feature's": (
        _frames(FRAME, FRAME["a"], target_column="b"),
        ValueError,
        "`target_column` ('b') must not be a column of `x`: ['a', 'b']. Pass another name",
    ),
    "pandas: target_column is a number": (
        _frames(FRAME, FRAME["a"], target_column=3),
        TypeError,
        "`target_column` (3) must be a string",
    ),
    "pandas: a column with a missing string": (
        _frames(pd.DataFrame({"a": np.array(["x", None], object)})),
        TypeError,
        "`x['a']` has missing values, values of ... give missing values a number or a string",
    ),
    "pandas: a column of dates": (
        _frames(pd.DataFrame({"a": pd.to_datetime(["2020-01-01"])})),
        TypeError,
        "`x['a']` has the dtype datetime64[",
    ),
    "pandas: batch_size is a string": (
        _frames(batch_size="2"),
        TypeError,
        "`batch_size` ('2') must be an integer",
    ),
}

PARSE_SPECS = {
    "spec: one column": (
        _spec(COLUMNS[0]),
        ValueError,
        "`feature_columns` (NumericColumn( ... must be a list of feature columns. Pass one column",
    ),
    "spec: names of columns": (
        _spec(["age"]),
        ValueError,
        "`feature_columns` holds 'age', which is not a feature column. Make one with",
    ),
    "spec: no columns": (
        _spec(None),
        ValueError,
        "`feature_columns` (None) must be a list of feature columns",
    ),
    "spec: no label": (
        _spec(label_key=None),
        ValueError,
        "`label_key` (None) must be a string, the name of the label",
    ),
    "spec: the label is a column": (
        _spec(label_key=COLUMNS[0]),
        TypeError,
        "`label_key` (NumericColumn( ... must be a string",
    ),
    "spec: the label is a feature": (
        _spec(label_key="age"),
        ValueError,
        "`label_key` ('age') must not be a feature too: ['age']",
    ),
    "spec: a dtype that is none": (
        _spec(label_dtype="label"),
        TypeError,
        "`label_dtype` ('label') must be a dtype",
    ),
    "spec: a default of another dtype": (
        _spec(label_default="none"),
        TypeError,
        "`label_default` ('none') must be of `label_dtype` (int64)",
    ),
    "spec: a default of too many values": (
        _spec(label_default=[1, 2]),
        ValueError,
        "`label_default` ([1, 2]) must have as many values as a label (1)",
    ),
    "spec: a default of too few values": (
        _regressor_spec(label_default=0.5, label_dimension=2),
        ValueError,
        "`label_default` (0.5) must have as many values as a label (2)",
    ),
    "spec: the weight is a feature": (
        _spec(weight_column="age"),
        ValueError,
        "`weight_column` ('age') must not be a feature too",
    ),
    "spec: the weight is a bucketized column": (
        _spec(weight_column=tf.feature_column.bucketized_column(COLUMNS[0], [1.0])),
        ValueError,
        "`weight_column` (BucketizedColumn( ... must be a string or a tf.feature_column.numeric_c",
    ),
    "spec: a label of no numbers": (
        _regressor_spec(label_dimension=0),
        ValueError,
        "`label_dimension` (0) must be at least 1",
    ),
    "spec: a label of half a number": (
        _regressor_spec(label_dimension=0.5),
        TypeError,
        "`label_dimension` (0.5) must be an integer",
    ),
}

ESTIMATORS = {
    "a subclass overrides train": (
        _subclass(est.Estimator, train=lambda self: None),
        ValueError,
        "Mine overrides train of Estimator. A subclass must not override ... rename its own",
    ),
    "a subclass of TPUEstimator overrides predict": (
        _subclass(est.tpu.TPUEstimator, predict=lambda self: None),
        ValueError,
        "Mine overrides predict of TPUEstimator",
    ),
    "add_metrics to a model_fn": (
        lambda s: est.add_metrics(linear, lambda labels: {}),
        TypeError,
        "`estimator` (< ... must be an Estimator",
    ),
    "metric_fn is a dict": (
        lambda s: est.add_metrics(s.model(), {"auc": 1}),
        TypeError,
        "`metric_fn` ({'auc': 1}) must be a function that returns a dict of metrics",
    ),
    "metric_fn is a built-in": (
        lambda s: est.add_metrics(s.model(), min),
        TypeError,
        "`metric_fn` (<built-in function min>) is compiled code, of which Python",
    ),
    "metric_fn takes the mode": (
        lambda s: est.add_metrics(s.model(), lambda labels, mode: {}),
        ValueError,
        "`metric_fn` takes unknown arguments (mode) ... any of features, labels, predictions, "
        "config; bind others with functools.partial",
    ),
}


def _evaluate_with(metric_fn, model_fn=linear):
    def call(s):
        more = est.add_metrics(s.model(model_fn), metric_fn)
        return more.evaluate(s.watch("input_fn", batches()))

    return call


ADDED_METRICS = {
    "the model_fn under metric_fn returns nothing": (
        _evaluate_with(lambda labels: {}, model_returning(None)),
        TypeError,
        "`model_fn` returned None",
    ),
    "metric_fn returns nothing": (
        _evaluate_with(lambda labels: None),
        TypeError,
        "`metric_fn` returned None. It must return a dict of name to (value tensor, update op)",
    ),
    "metric_fn returns a tensor for a metric": (
        _evaluate_with(lambda labels: {"sum": tf.reduce_sum(labels)}),
        TypeError,
        "`eval_metric_ops['sum']` (< ... must be (value tensor, update op)",
    ),
}
