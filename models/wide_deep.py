"""A wide-and-deep model of flights: will this one arrive late?

A linear model memorizes, and a deep one generalizes. The wide half has a weight for each airline,
for each hour at each airport and for each airline's route, so it learns single facts. The deep half
has embeddings and the weather, so it can say something about combinations that it never saw. Both
halves are trained together, on the sum of their logits (Cheng et al., 2016, "Wide & Deep Learning
for Recommender Systems").
"""

from typing import Any

import tensorflow as tf

import estimator as est

# Airlines that are not listed share a category.
CARRIERS = [
    *("9E", "AA", "AS", "B6", "DL", "EV", "F9", "FL", "HA", "MQ"),
    *("UA", "US", "VX", "WN", "YV"),
]
ORIGINS = ("EWR", "JFK", "LGA")
HOUR_BOUNDARIES = (8, 11, 14, 16, 18, 20)
# Mean and standard deviation over the training flights.
NUMBERS = {
    "hour": (13.1, 4.65),
    "distance": (1050.0, 730.0),
    "temperature": (57.0, 18.0),
    "dew_point": (42.0, 19.0),
    "wind_speed": (11.0, 5.5),
    "precipitation": (0.004, 0.03),
    "visibility": (9.3, 2.0),
}

columns = tf.feature_column


def make_classifier(
    config: est.RunConfig, *, learning_rate: float = 0.05
) -> est.DNNLinearCombinedClassifier:
    """Makes the classifier, whose class 1 is "late".

    Args:
      config: where and how to train.
      learning_rate: of the deep half.
    """
    return est.DNNLinearCombinedClassifier(
        linear_feature_columns=make_wide_columns(),
        linear_optimizer=tf.compat.v1.train.FtrlOptimizer(0.05, l2_regularization_strength=5.0),
        dnn_feature_columns=make_deep_columns(),
        dnn_optimizer=tf.compat.v1.train.AdagradOptimizer(learning_rate),
        dnn_hidden_units=[64, 32],
        dnn_dropout=0.3,
        config=config,
    )


def make_wide_columns() -> list[Any]:
    """Makes the columns to memorize: categories, and combinations of them."""
    hours = columns.bucketized_column(columns.numeric_column("hour"), list(HOUR_BOUNDARIES))
    return [
        _make_categories("carrier"),
        _make_categories("dest"),
        _make_categories("month"),
        _make_categories("weekday"),
        columns.crossed_column([hours, "origin"], hash_bucket_size=100),
        columns.crossed_column(["carrier", "origin", "dest"], hash_bucket_size=2000),
    ]


def make_deep_columns() -> list[Any]:
    """Makes the columns to generalize from: scaled numbers, indicators and embeddings."""
    numbers = [
        columns.numeric_column(name, normalizer_fn=_make_normalizer(mean, deviation))
        for name, (mean, deviation) in NUMBERS.items()
    ]
    indicators = [
        columns.indicator_column(_make_categories(name)) for name in ("origin", "month", "weekday")
    ]
    embeddings = [
        columns.embedding_column(_make_categories("carrier"), dimension=4),
        columns.embedding_column(_make_categories("dest"), dimension=8),
    ]
    return [*numbers, *indicators, *embeddings]


def make_serving_input_receiver_fn() -> Any:
    """Makes the input of an export: serialized `tf.Example`s, with the features of all columns."""
    spec = columns.make_parse_example_spec([*make_wide_columns(), *make_deep_columns()])
    return est.export.build_parsing_serving_input_receiver_fn(spec)


def _make_categories(name: str) -> Any:
    """Makes the column of a feature: listed categories if they are few, hashed ones if many."""
    if name == "carrier":
        return columns.categorical_column_with_vocabulary_list(name, CARRIERS, num_oov_buckets=1)
    if name == "origin":
        return columns.categorical_column_with_vocabulary_list(name, ORIGINS)
    if name == "dest":
        return columns.categorical_column_with_hash_bucket(name, hash_bucket_size=500)
    return columns.categorical_column_with_identity(name, {"month": 13, "weekday": 7}[name])


def _make_normalizer(mean: float, deviation: float) -> Any:
    return lambda values: (values - mean) / deviation
