"""KMeans moves centers as that of tf.estimator 2.15, and chooses them as documented."""

import json

import numpy as np
import pytest
import tensorflow as tf

import estimator as est
from tests.canned import experimental_cases as cases
from tests.canned import model_cases, reference_data

KMeans = est.compat.v1.experimental.KMeans
POINTS = cases.POINTS
V1 = tf.compat.v1


@pytest.mark.parametrize("name", ["k_means", "k_means_cosine"])
def test_twenty_steps_on_all_data_are_those_of_2_15(name, tmp_path):
    with reference_data.make(name, tmp_path, iterations_per_loop=7) as model:
        model.train(cases.CASES[name].input_fn(repeats=True), max_steps=model_cases.NUM_STEPS)
        ours = model_cases.read_variables(str(tmp_path), model_cases.NUM_STEPS)
        reference_data.check_variables(
            ours, reference_data.variables_at(name, model_cases.NUM_STEPS)
        )
        reference_data.check_results(name, model)


def normalized(points):
    return points / np.linalg.norm(points, axis=-1, keepdims=True)


def means_of_batches(num_steps, size, steps_per_iteration, is_cosine):
    """The centers after some steps, and those that they move to next.

    In 2.15 a batch's points were counted before or after they were added, depending on
    thread timing.
    """
    points = normalized(POINTS) if is_cosine else POINTS
    centers = following = points[:3].astype(np.float64)
    counts = np.full([3, 1], float(steps_per_iteration == 1))
    for step in range(num_steps):
        batch = np.take(points, np.arange(step * size, (step + 1) * size), 0, mode="wrap")
        used = normalized(centers) if is_cosine else centers
        nearest = np.square(batch[:, np.newaxis] - used).sum(-1).argmin(1)
        if steps_per_iteration == 1:
            following = centers
        elif step and step % steps_per_iteration == 0:
            centers = normalized(following) if is_cosine else following
            counts = np.zeros([3, 1])
        is_of = (nearest == np.arange(3)[:, np.newaxis]).astype(np.float64)
        new = is_of.sum(1, keepdims=True)
        total = np.maximum(counts + new, 1)
        following = following + (is_of @ batch - new * following) / total
        counts = counts + new
        if steps_per_iteration == 1:
            centers = following
    return centers, following


@pytest.mark.each_value
@pytest.mark.parametrize("steps_per_iteration", [1, 3])
@pytest.mark.parametrize("metric", [KMeans.SQUARED_EUCLIDEAN_DISTANCE, KMeans.COSINE_DISTANCE])
def test_centers_are_the_means_of_the_points_in_mini_batches(steps_per_iteration, metric, tmp_path):
    with make(
        tmp_path,
        loop=5,
        initial_clusters=POINTS[:3],
        mini_batch_steps_per_iteration=steps_per_iteration,
        distance_metric=metric,
    ) as model:
        model.train(points_input_fn(8, None), steps=20)
        found = model.cluster_centers()
        expected, following = means_of_batches(20, 8, steps_per_iteration, metric == "cosine")
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
        if steps_per_iteration > 1:
            found = model.get_variable_value("clusters_updated")
            np.testing.assert_allclose(found, following, rtol=1e-4, atol=1e-5)


def test_a_model_dir_of_2_15_goes_on(tmp_path):
    steps = model_cases.NUM_STEPS
    reference_data.write_checkpoint(
        reference_data.variables_at("k_means_3", steps), tmp_path, steps
    )
    with reference_data.make("k_means_3", tmp_path) as model:
        np.testing.assert_array_equal(
            model.cluster_centers(), reference_data.variables_at("k_means_3", steps)["clusters"]
        )
        model.train(reference_data.input_fn("k_means_3"), steps=1)
        assert model.train_result.global_step == steps + 1


def points_input_fn(size=40, num_epochs=1):
    def make():
        return tf.data.Dataset.from_tensor_slices(POINTS).repeat(num_epochs).batch(size)

    return make


def make(model_dir, loop=1, **settings):
    config = est.RunConfig(iterations_per_loop=loop, tf_random_seed=3, save_summary_steps=None)
    return KMeans(model_dir=str(model_dir), config=config, **{"num_clusters": 6, **settings})


def as_rows(array):
    return {tuple(row) for row in np.asarray(array).tolist()}


def last_of_batch(batches, num_missing):
    (points,) = batches
    return points[-tf.minimum(num_missing, 4) :]


# Learns nothing in these steps, so that the first centers are left.
STAYS = {"mini_batch_steps_per_iteration": 100}


@pytest.mark.parametrize(
    ("initial", "size", "num_steps"),
    [
        (KMeans.RANDOM_INIT, 40, 1),
        (KMeans.RANDOM_INIT, 4, 2),
        (KMeans.KMEANS_PLUS_PLUS_INIT, 40, 1),
        (last_of_batch, 5, 2),
    ],
    ids=["random", "random of two batches", "k-means++", "function of two batches"],
)
def test_centers_are_chosen_among_the_points(initial, size, num_steps, tmp_path):
    with make(tmp_path, loop=num_steps, initial_clusters=initial, seed=5, **STAYS) as model:
        model.train(points_input_fn(size), steps=num_steps - 1 or 1)
        assert model.get_variable_value("initialized") == (num_steps == 1)
        model.train(points_input_fn(size), steps=1)
        chosen = model.cluster_centers()
        assert model.get_variable_value("initialized") == (num_steps == 1)
        model.train(points_input_fn(size), steps=num_steps)
        assert model.get_variable_value("initialized")
        assert as_rows(model.cluster_centers()) <= as_rows(POINTS)
        if num_steps == 1:
            np.testing.assert_array_equal(model.cluster_centers(), chosen)


def chosen_centers(model_dir, initial, *, seed=None, graph_seed=None):
    config = est.RunConfig(tf_random_seed=graph_seed, save_summary_steps=None)
    model = KMeans(6, str(model_dir), initial, seed=seed, config=config, **STAYS)
    with model:
        model.train(points_input_fn(), steps=1)
        return as_rows(model.cluster_centers())


@pytest.mark.parametrize("initial", [KMeans.RANDOM_INIT, KMeans.KMEANS_PLUS_PLUS_INIT])
def test_a_seed_decides_which_points_are_the_first_centers(initial, tmp_path):
    seeds = [{}, {}, {"seed": 5}, {"seed": 5}, {"graph_seed": 3}, {"graph_seed": 3}]
    runs = [
        chosen_centers(tmp_path / str(number), initial, **seeds)
        for number, seeds in enumerate(seeds)
    ]
    # By chance, two runs choose the same 6 of 40 points once in millions.
    assert runs[0] != runs[1]
    assert runs[2] == runs[3]
    assert runs[4] == runs[5]
    assert runs[4] != runs[2]


def test_clusters_are_found_scored_and_exported(tmp_path):
    centers = np.float32([[-9, 0], [0, 9], [9, 0]])
    points = (centers[:, np.newaxis] + np.float32([[0, 1], [0, -1]])).reshape(-1, 2)

    def input_fn():
        return tf.data.Dataset.from_tensors({"points": points})

    with make(
        tmp_path / "model",
        num_clusters=3,
        initial_clusters=KMeans.KMEANS_PLUS_PLUS_INIT,
        use_mini_batch=False,
    ) as model:
        model.train(lambda: input_fn().repeat(), steps=5)
        found = model.cluster_centers()
        np.testing.assert_allclose(sorted(found.tolist()), centers, atol=1e-4)
        assert model.score(input_fn) == pytest.approx(6, abs=1e-3)
        indices = list(model.predict_cluster_index(input_fn))
        np.testing.assert_allclose(found[indices], centers.repeat(2, 0), atol=1e-4)
        distances = list(model.transform(input_fn))
        expected = np.linalg.norm(points[:, np.newaxis] - found, axis=-1)
        np.testing.assert_allclose(distances, expected, rtol=1e-3)
        receiver = est.export.build_raw_serving_input_receiver_fn(
            {"points": tf.TensorSpec([None, 2], tf.float32)}
        )
        path = model.export_saved_model(str(tmp_path / "export"), receiver)
    signature = tf.saved_model.load(path.decode()).signatures["serving_default"]
    (output,) = signature(tf.constant(points)).values()
    assert output.numpy().tolist() == indices


@pytest.mark.parametrize("loop", [1, 3])
def test_training_stops_when_the_loss_hardly_changes(loop, tmp_path):
    settings = {"use_mini_batch": False, "relative_tolerance": 0.5}
    with make(tmp_path, loop, initial_clusters=POINTS[:3], **settings) as model:
        model.train(points_input_fn(num_epochs=None), steps=30)
        assert model.train_result.global_step == 2 * loop


BAD = {
    "clusters": ({"num_clusters": 0}, "`num_clusters` (0) must be at least 1"),
    "clusters are a float": ({"num_clusters": 2.5}, "`num_clusters` (2.5) must be an integer"),
    "first centers": ({"initial_clusters": "kmeans++"}, "`initial_clusters` ('kmeans++') is unkn"),
    "first centers are a row": ({"initial_clusters": [1.0, 2.0]}, "`initial_clusters` has shape"),
    "first centers are words": ({"initial_clusters": [["a"]]}, "must be an array of centers"),
    "distance": ({"distance_metric": "cosinus"}, "('cosinus') is unknown. Did you mean 'cosine'?"),
    "seed": ({"seed": 0.5}, "`seed` (0.5) must be an integer"),
    "mini-batch": ({"use_mini_batch": 1}, "`use_mini_batch` (1) must be True or False"),
    "steps": (
        {"mini_batch_steps_per_iteration": 0},
        "`mini_batch_steps_per_iteration` (0) must be at least 1",
    ),
    "retries": ({"kmeans_plus_plus_num_retries": "2"}, "`kmeans_plus_plus_num_retries` ('2') must"),
    "tolerance": ({"relative_tolerance": -1}, "`relative_tolerance` (-1) must be at least 0"),
    "columns": ({"feature_columns": []}, "`feature_columns` ([]) must have at least one"),
}


@pytest.mark.parametrize("name", BAD)
def test_an_error_names_the_argument(name, tmp_path):
    settings, part = BAD[name]
    with pytest.raises(ValueError) as info:  # noqa: PT011 - the part is the match
        make(tmp_path, **settings)
    assert part in str(info.value)


def test_features_must_be_rows_of_one_size(tmp_path):
    def input_fn():
        return tf.data.Dataset.from_tensor_slices(POINTS[:, 0]).batch(8)

    with make(tmp_path) as model, pytest.raises(ValueError, match=r"shape \(None,\); it must be"):
        model.train(input_fn)


@pytest.mark.parametrize(
    ("features", "settings", "message"),
    [
        ({"x": POINTS, "y": POINTS[:, 0]}, {}, r"The feature 'y' has shape \(None,\); it must be"),
        (
            {"x": V1.SparseTensorValue([[0, 0], [1, 1]], np.float32([1, 2]), [2, 2])},
            {},
            "The feature 'x' must be a dense tensor, not a SparseTensor. Use `feature_columns`, or",
        ),
        (
            POINTS,
            {"initial_clusters": np.zeros([3, 5])},
            r"`initial_clusters` has shape \(3, 5\), but the points have 2 values each",
        ),
        (
            POINTS,
            {"initial_clusters": lambda batches, n: batches[0][:, :1]},
            r"`initial_clusters` \(<function .* returned centers of shape \(None, 1\); it must be",
        ),
        (
            POINTS,
            {"initial_clusters": lambda batches, n: batches[0][: n + 1]},
            r"`initial_clusters` \(<function .* returned more centers than are missing",
        ),
    ],
    ids=["rank 1", "sparse", "size of an array", "size of a function's", "too many"],
)
def test_training_names_the_feature_or_the_argument(features, settings, message, tmp_path):
    def input_fn():
        return tf.data.Dataset.from_tensor_slices(features).batch(8)

    errors = (ValueError, tf.errors.InvalidArgumentError)
    with make(tmp_path, **settings) as model, pytest.raises(errors, match=message):
        model.train(input_fn)


def test_a_model_without_all_centers_neither_evaluates_nor_predicts(tmp_path):
    with make(tmp_path / "model", loop=2) as model:
        model.train(points_input_fn(2), steps=2)
        for run in (model.evaluate, lambda input_fn: next(model.predict(input_fn))):
            with pytest.raises(tf.errors.InvalidArgumentError, match="has not chosen the 6 cent"):
                run(points_input_fn())


def test_plus_plus_needs_a_batch_with_as_many_points(tmp_path):
    with (
        make(tmp_path, initial_clusters=KMeans.KMEANS_PLUS_PLUS_INIT) as model,
        pytest.raises(
            tf.errors.InvalidArgumentError, match="all 6 centers from one batch, which must have"
        ),
    ):
        model.train(points_input_fn(4))


def test_several_replicas_are_refused(tmp_path):
    config = est.RunConfig(strategy="mirrored", num_replicas=2)
    with (
        KMeans(3, str(tmp_path), config=config) as model,
        pytest.raises(ValueError, match="KMeans cannot run on 2 replicas"),
    ):
        model.train(points_input_fn(8))


CLUSTER = {
    "cluster": {"worker": ["localhost:1", "localhost:2"], "ps": ["localhost:3"]},
    "task": {"type": "worker", "index": 0},
}


@pytest.mark.parametrize("title", ["KMeans", "LinearSDCA"])
def test_several_workers_are_refused(title, tmp_path, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", json.dumps(CLUSTER))
    config = est.RunConfig()
    column, sdca = tf.feature_column.numeric_column("x"), est.experimental.LinearSDCA("key")
    with (
        KMeans(3, str(tmp_path), config=config)
        if title == "KMeans"
        else est.LinearRegressor([column], str(tmp_path), optimizer=sdca, config=config)
    ) as model:
        features = {"x": tf.zeros([2, 1])}
        with pytest.raises(ValueError, match=f"{title} cannot train with 2 workers"):
            model.model_fn(features, None, "train", config)
