"""`pandas_input_fn`: a column is a feature, the index of the labels is that of the features."""

import pathlib
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import estimator as est
from tests.input.test_numpy_input import batches_of
from tests.toy import ids_model_fn, ids_of

pandas_input_fn = est.inputs.pandas_input_fn


def frame(index=(3, 1, 2)):
    return pd.DataFrame({"a": [1, 2, 3], "b": [0.5, 1.5, np.nan]}, index=list(index))


def test_columns_are_features_with_their_dtypes():
    [features] = batches_of(pandas_input_fn(frame(), shuffle=False))
    assert features.keys() == {"a", "b"}
    assert features["a"].tolist() == [1, 2, 3]
    assert [features[name].dtype for name in ("a", "b")] == [np.int64, np.float64]
    np.testing.assert_array_equal(features["b"], [0.5, 1.5, np.nan])


def test_a_series_gives_labels_and_the_last_batch_may_be_smaller():
    y = pd.Series([10, 20, 30], index=[3, 1, 2], name="anything")
    found = batches_of(pandas_input_fn(frame(), y, batch_size=2, shuffle=False))
    assert [(f["a"].tolist(), y.tolist()) for f, y in found] == [([1, 2], [10, 20]), ([3], [30])]


def test_a_frame_gives_a_dict_of_labels_also_of_names_that_features_have():
    y = pd.DataFrame({"a": [7, 8, 9], "c": ["x", "y", "z"]}, index=[3, 1, 2])
    [(features, labels)] = batches_of(pandas_input_fn(frame(), y, shuffle=False))
    assert features["a"].tolist() == [1, 2, 3]
    assert {name: values.tolist() for name, values in labels.items()} == {
        "a": [7, 8, 9],
        "c": [b"x", b"y", b"z"],
    }


@pytest.mark.parametrize(
    "column",
    [
        pd.Series(["one", "two", "one"]),
        pd.Series(["one", "two", "one"], dtype="category"),
        pd.Series(["one", "two", "one"], dtype="string"),
    ],
    ids=lambda column: str(column.dtype),
)
def test_columns_of_strings_are_strings(column):
    [features] = batches_of(pandas_input_fn(pd.DataFrame({"c": column}), shuffle=False))
    assert features["c"].tolist() == [b"one", b"two", b"one"]


def test_epochs_and_shuffling_are_those_of_numpy_input_fn():
    x = pd.DataFrame({"a": np.arange(20)})
    found = [
        [batch["a"].tolist() for batch in batches_of(input_fn, seed=4)]
        for input_fn in (
            pandas_input_fn(x, None, 3, 2, shuffle=True),
            est.inputs.numpy_input_fn({"a": np.arange(20)}, None, 3, 2, shuffle=True),
        )
    ]
    assert found[0] == found[1]
    assert sorted(sum(found[0], [])) == sorted([*range(20), *range(20)])


def test_the_same_frame_is_the_same_input(tmp_path):
    x = pd.DataFrame({"id": np.arange(50)})

    def model_fn(features, labels, mode):
        return ids_model_fn(features["id"], labels, mode)

    trained = est.Estimator(model_fn, str(tmp_path))
    for steps in (7, 20, 23):
        input_fn = pandas_input_fn(x, batch_size=1, num_epochs=None, shuffle=True)
        trained.train(input_fn, steps=steps)
    assert sorted(ids_of(trained)) == list(range(50))


def test_the_library_does_without_pandas():
    program = (
        "import sys\n"
        "sys.modules['pandas'] = None\n"  # An import fails, as where there is none.
        "import estimator as est\n"
        "try:\n    est.inputs.pandas_input_fn({'a': [1]}, shuffle=True)\n"
        "except TypeError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=pathlib.Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stdout.startswith("`x` (dict) must be a pandas DataFrame.")


def test_its_batches_are_tensors_of_known_rank():
    with tf.Graph().as_default():
        features, labels = (
            pandas_input_fn(frame(), frame()["a"], shuffle=True).build_dataset().element_spec
        )
    assert [spec.shape.as_list() for spec in (*features.values(), labels)] == [[None]] * 3
