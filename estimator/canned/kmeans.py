"""k-means clustering."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from estimator.canned.clustering import PLUS_PLUS, RANDOM, Clustering
from estimator.canned.columns import build_dense_input, checked_columns
from estimator.canned.one_trainer import check_one_trainer
from estimator.config.checks import (
    WrongTypeError,
    check_bool,
    check_choice,
    check_int,
    check_number,
)
from estimator.config.run_config import RunConfig
from estimator.estimators.estimator import Estimator
from estimator.spec import EstimatorSpec, ModeKeys
from estimator.spec.outputs import PredictOutput

V1 = tf.compat.v1
_EUCLIDEAN, _COSINE = "squared_euclidean", "cosine"


class KMeans(Estimator):
    """Divides points into clusters, each around its center.

    A point is a row of a feature. Features may be one tensor, or a dict. Of a dict, the tensors are
    concatenated in the order of their keys, or the `feature_columns` are applied. Labels are not
    used.
    """

    SQUARED_EUCLIDEAN_DISTANCE = _EUCLIDEAN
    COSINE_DISTANCE = _COSINE
    RANDOM_INIT = RANDOM
    KMEANS_PLUS_PLUS_INIT = PLUS_PLUS
    SCORE = "score"
    CLUSTER_INDEX = "cluster_index"
    ALL_DISTANCES = "all_distances"
    CLUSTER_CENTERS_VAR_NAME = "clusters"

    def __init__(  # noqa: PLR0913 - the documented signature
        self,
        num_clusters: int,
        model_dir: str | None = None,
        initial_clusters: Any = RANDOM_INIT,
        distance_metric: str = SQUARED_EUCLIDEAN_DISTANCE,
        seed: int | None = None,
        use_mini_batch: bool = True,
        mini_batch_steps_per_iteration: int = 1,
        kmeans_plus_plus_num_retries: int = 2,
        relative_tolerance: float | None = None,
        config: RunConfig | None = None,
        feature_columns: Sequence[Any] | None = None,
    ) -> None:
        """Checks the arguments; builds nothing.

        Args:
          num_clusters: the number of clusters; ignored if `initial_clusters` is an array.
          model_dir: see `Estimator`.
          initial_clusters: the first centers, which are chosen in the first steps. RANDOM_INIT:
            random points of the first batch; a batch with fewer points gives all of them, and the
            next batches give the other centers. KMEANS_PLUS_PLUS_INIT: k-means++ on one batch. An
            array [num_clusters, size]. Or a function that takes a list with the batch of points,
            and the number of missing centers, and returns at most as many.
          distance_metric: SQUARED_EUCLIDEAN_DISTANCE or COSINE_DISTANCE.
          seed: of the choice of the first centers. None for `RunConfig.tf_random_seed`; without
            either, each run chooses others.
          use_mini_batch: if False, a step moves each center to the mean of the batch's points that
            are nearest to it, so the batch must have all data. If True, to the mean of all such
            points so far.
          mini_batch_steps_per_iteration: with mini-batches, the number of steps after which centers
            move, to the mean of the points in these steps.
          kmeans_plus_plus_num_retries: the number of additional candidates that k-means++ samples
            for each center, of which it keeps the best; negative for O(log(num_clusters)).
          relative_tolerance: training stops when, between two session calls, the loss changes by
            less than `relative_tolerance * (1 + |previous loss|)`; in a loop, the loss is that of
            its last step.
          config: see `Estimator`. Training and evaluation need one replica.
          feature_columns: dense columns of `tf.feature_column`; None for all features.

        Raises:
          TypeError, ValueError: an argument is invalid.
        """
        check_choice("distance_metric", distance_metric, (_EUCLIDEAN, _COSINE))
        if seed is not None:
            check_int("seed", seed, minimum=None)
        check_bool("use_mini_batch", use_mini_batch)
        check_int("mini_batch_steps_per_iteration", mini_batch_steps_per_iteration)
        check_int("kmeans_plus_plus_num_retries", kmeans_plus_plus_num_retries, minimum=None)
        if relative_tolerance is not None:
            check_number("relative_tolerance", relative_tolerance, minimum=0)
        if feature_columns is not None:
            feature_columns = checked_columns("feature_columns", feature_columns, only_dense=True)
        initial_clusters = _checked_initial(initial_clusters)
        if isinstance(initial_clusters, np.ndarray):
            num_clusters = len(initial_clusters)
        check_int("num_clusters", num_clusters)
        self._distance_metric = distance_metric
        algorithm = Clustering(
            int(num_clusters),
            initial_clusters,
            distance_metric == _COSINE,
            seed,
            int(mini_batch_steps_per_iteration) if use_mini_batch else 0,
            int(kmeans_plus_plus_num_retries),
        )
        model_fn = _make_model_fn(algorithm, feature_columns, relative_tolerance)
        super().__init__(model_fn, model_dir, config)

    def predict_cluster_index(self, input_fn: Callable) -> Iterator[int]:
        """Yields the index of the center that is nearest to each point; see `predict`."""
        for row in self.predict(input_fn, predict_keys=[self.CLUSTER_INDEX]):
            yield row[self.CLUSTER_INDEX]

    def score(self, input_fn: Callable) -> float:
        """Returns the sum of distances between the points of one batch and their nearest centers.

        Distances are squared, or cosine distances; see `evaluate`.
        """
        return self.evaluate(input_fn, steps=1)[self.SCORE]

    def transform(self, input_fn: Callable) -> Iterator[np.ndarray]:
        """Yields the distances between each point and all centers; see `predict`.

        Euclidean distances are not squared here, as in 2.15, though not in its documentation.
        """
        for row in self.predict(input_fn, predict_keys=[self.ALL_DISTANCES]):
            distances = row[self.ALL_DISTANCES]
            yield distances if self._distance_metric == _COSINE else np.sqrt(distances)

    def cluster_centers(self) -> np.ndarray:
        """Returns the centers of the newest checkpoint: [number of clusters, size]."""
        return self.get_variable_value(self.CLUSTER_CENTERS_VAR_NAME)


def _checked_initial(initial: Any) -> Any:
    """Returns the name, the function, or an array of centers."""
    if isinstance(initial, str):
        check_choice("initial_clusters", initial, (RANDOM, PLUS_PLUS))
        return initial
    if callable(initial):
        return initial
    try:
        centers = np.asarray(initial, np.float32)
    except (TypeError, ValueError, NotImplementedError) as error:
        raise WrongTypeError(
            f"`initial_clusters` ({initial!r}) must be an array of centers, a function, 'random' "
            "or 'kmeans_plus_plus'."
        ) from error
    if centers.ndim != 2 or not len(centers):
        raise ValueError(
            f"`initial_clusters` has shape {centers.shape}; it must be [number of clusters, size]."
        )
    return centers


def _make_model_fn(algorithm: Clustering, columns: Any, tolerance: float | None) -> Callable:
    def model_fn(features: Any, mode: str, config: RunConfig) -> EstimatorSpec:
        if mode != ModeKeys.PREDICT:
            check_one_trainer("KMeans", "move the centers on its own", mode, config)
        is_training = mode == ModeKeys.TRAIN
        points = algorithm.normalized(_points_of(features, columns))
        state = algorithm.make_state(points.shape[1])
        if is_training:
            ready = algorithm.build_choice(points, state)
        else:
            ready = algorithm.build_check(state)
        with tf.control_dependencies([ready]):
            centers = algorithm.read_centers(state)
        nearest, distances = algorithm.build_nearest(points, centers)
        loss = tf.reduce_sum(distances)
        V1.summary.scalar("loss/raw", loss)
        predictions = {
            KMeans.ALL_DISTANCES: algorithm.build_distances(points, centers),
            KMeans.CLUSTER_INDEX: nearest,
        }
        outputs = {key: PredictOutput(value) for key, value in predictions.items()}
        outputs["serving_default"] = PredictOutput(nearest)
        train_op = None
        if is_training:
            # The loss is that of the centers before the step.
            with tf.control_dependencies([loss]):
                moved = algorithm.build_move(points, nearest, state)
            with tf.control_dependencies([moved]):
                train_op = V1.train.get_or_create_global_step().assign_add(1).op
        is_evaluation = mode == ModeKeys.EVAL
        return EstimatorSpec(
            mode,
            predictions,
            loss,
            train_op,
            eval_metric_ops={KMeans.SCORE: V1.metrics.mean(loss)} if is_evaluation else None,
            export_outputs=outputs,
            training_hooks=[] if tolerance is None else [_ToleranceHook(loss, tolerance)],
        )

    return model_fn


def _points_of(features: Any, columns: Any) -> tf.Tensor:
    """Returns the points: [batch size, size]."""
    if columns is not None:
        return build_dense_input(columns, features, scope="input_layer")
    if not isinstance(features, Mapping):
        return _checked_rows("`features`", features)
    parts = [_checked_rows(f"The feature {key!r}", features[key]) for key in sorted(features)]
    return tf.concat(parts, 1)


def _checked_rows(what: str, values: Any) -> tf.Tensor:
    """Returns a feature as floats, [batch size, size]; raises an error if it has another shape."""
    if isinstance(values, tf.SparseTensor | tf.RaggedTensor):
        raise WrongTypeError(
            f"{what} must be a dense tensor, not a {type(values).__name__}. Use `feature_columns`, "
            "or convert it in `input_fn`."
        )
    values = tf.cast(values, tf.float32)
    if values.shape.rank != 2 or values.shape.as_list()[1] is None:
        raise ValueError(
            f"{what} has shape {values.shape}; it must be [batch size, size] with a known size. "
            "Reshape it in `input_fn`, or set its shape with `set_shape`."
        )
    return values


class _ToleranceHook(tf.compat.v1.train.SessionRunHook):
    """Stops training when the relative change of the loss is below the tolerance."""

    def __init__(self, loss: tf.Tensor, tolerance: float) -> None:
        self._loss = loss
        self._tolerance = tolerance
        self._before: float | None = None

    def before_run(self, run_context: Any) -> Any:
        """Asks for the loss."""
        return V1.train.SessionRunArgs(self._loss)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """Compares it with that of the previous call, and may ask to stop."""
        loss, before = run_values.results, self._before
        if before is not None and abs(loss - before) / (1 + abs(before)) < self._tolerance:
            run_context.request_stop()
        self._before = loss
