"""The steps of k-means: how centers are chosen, and how they move."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

V1 = tf.compat.v1
RANDOM, PLUS_PLUS = "random", "kmeans_plus_plus"


@dataclasses.dataclass(frozen=True)
class ClusteringState:
    """The variables of k-means, which have the names of tf.estimator 2.15.

    Attributes:
      centers: the centers.
      is_chosen: whether all of them are chosen.
      num_chosen: the number of centers that are chosen; it is not saved.
      counts: the number of points that each center is the mean of; None for full batches.
      next_centers: the centers after this iteration; `centers` if an iteration has one step.
      steps_left: the number of steps before the centers move; None if an iteration has one step.
    """

    centers: tf.Variable
    is_chosen: tf.Variable
    num_chosen: tf.Variable
    counts: tf.Variable | None
    next_centers: tf.Variable
    steps_left: tf.Variable | None


@dataclasses.dataclass(frozen=True)
class Clustering:
    """How centers are chosen and moved; see `KMeans`.

    Attributes:
      num_clusters: the number of clusters.
      initial: "random", "kmeans_plus_plus", a function, or an array of centers.
      is_cosine: whether distances are cosine distances; points have length 1 then.
      seed: the seed of random choices; None for that of the graph, if it has one.
      num_steps: the number of mini-batches in an iteration; 0 for full batches.
      num_retries: the `kmeans_plus_plus_num_retries` of `KMeans`.
    """

    num_clusters: int
    initial: Any
    is_cosine: bool
    seed: int | None
    num_steps: int
    num_retries: int

    def make_state(self, size: int) -> ClusteringState:
        """Makes the variables for points with this number of coordinates."""

        def make(name: str, shape: Sequence[int], value: Any, dtype: Any, **kwargs: Any) -> Any:
            initializer = V1.constant_initializer(value, dtype)
            return V1.get_variable(name, shape, dtype, initializer, trainable=False, **kwargs)

        shape = [self.num_clusters, size]
        centers = make("clusters", shape, 0, tf.float32)
        next_centers, counts, steps_left = centers, None, None
        if self.num_steps > 0:
            counts = make("Variable", shape[:1], int(self.num_steps == 1), tf.int64)
        if self.num_steps > 1:
            next_centers = make("clusters_updated", shape, 0, tf.float32)
            steps_left = make("update_in_steps", [], self.num_steps, tf.int64)
        is_chosen = make("initialized", [], False, tf.bool)
        local = [V1.GraphKeys.LOCAL_VARIABLES]
        num_chosen = make("num_chosen", [], 0, tf.int32, collections=local)
        return ClusteringState(centers, is_chosen, num_chosen, counts, next_centers, steps_left)

    def read_centers(self, state: ClusteringState) -> tf.Tensor:
        """Returns the centers; for cosine distances they have length 1."""
        return self.normalized(state.centers.read_value())

    def normalized(self, points: tf.Tensor) -> tf.Tensor:
        """Returns points of length 1 for cosine distances; else the points."""
        return tf.math.l2_normalize(points, 1) if self.is_cosine else points

    def build_distances(self, points: tf.Tensor, centers: tf.Tensor) -> tf.Tensor:
        """Returns the distances between points and centers: [batch size, number of clusters]."""
        products = tf.matmul(points, centers, transpose_b=True)
        if self.is_cosine:
            return 1 - products
        squares = [tf.reduce_sum(tf.square(of), 1) for of in (points, centers)]
        return squares[0][:, tf.newaxis] - 2 * products + squares[1]

    def build_nearest(self, points: tf.Tensor, centers: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the nearest center of each point, and its distance."""
        # Needs less memory than all distances.
        nearest, squares = tf.raw_ops.NearestNeighbors(points=points, centers=centers, k=1)
        # Between points of length 1, the square is twice the cosine distance.
        return nearest[:, 0], squares[:, 0] * (0.5 if self.is_cosine else 1)

    # --- Choosing ---------------------------------------------------------------------------------

    def build_check(self, state: ClusteringState) -> tf.Operation:
        """Returns an op that fails unless all centers are chosen."""
        message = (
            f"Training has not chosen the {self.num_clusters} centers of KMeans yet, because it "
            "saw too few points. Train with more, or with a smaller `num_clusters`."
        )
        return tf.raw_ops.Assert(condition=state.is_chosen.read_value(), data=[message])

    def build_choice(self, points: tf.Tensor, state: ClusteringState) -> tf.Operation:
        """Returns an op that chooses centers from a batch, until all are chosen."""
        if isinstance(self.initial, np.ndarray) and self.initial.shape[1] != points.shape[1]:
            raise ValueError(
                f"`initial_clusters` has shape {self.initial.shape}, but the points have "
                f"{points.shape[1]} values each; it must be [number of clusters, "
                f"{points.shape[1]}]. Pass centers of this size, or other features."
            )

        def choose() -> tf.Tensor:
            done = state.num_chosen.read_value()
            new = self.normalized(self._choose(points, self.num_clusters - done))
            num_chosen = done + tf.shape(new)[0]
            centers = state.centers.read_value()
            centers = tf.concat([centers[:done], new, centers[num_chosen:]], 0)
            assigned = [
                state.num_chosen.assign(num_chosen),
                state.centers.assign(centers),
                state.next_centers.assign(centers),
                state.is_chosen.assign(tf.equal(num_chosen, self.num_clusters)),
            ]
            return _build_after(assigned)

        return tf.cond(state.is_chosen, lambda: tf.constant(True), choose).op

    def _choose(self, points: tf.Tensor, num_missing: tf.Tensor) -> tf.Tensor:
        """Returns up to `num_missing` centers."""
        if isinstance(self.initial, np.ndarray):
            return tf.constant(self.initial)
        if callable(self.initial):
            return self._checked_centers(self.initial([points], num_missing), points, num_missing)
        num_points = tf.shape(points)[0]
        if self.initial == RANDOM:

            def draw() -> tf.Tensor:
                limit = tf.cast(num_points, tf.int64)
                drawn = tf.random.uniform([num_missing], 0, limit, tf.int64, self.seed)
                return tf.gather(points, drawn)

            return tf.cond(num_points <= num_missing, lambda: tf.identity(points), draw)
        message = (
            f"k-means++ chooses all {self.num_clusters} centers from one batch, which must have at "
            "least as many points. Use larger batches, a smaller `num_clusters`, or "
            "`initial_clusters=KMeans.RANDOM_INIT`, which takes several batches."
        )
        check = V1.debugging.assert_greater_equal(num_points, num_missing, message=message)
        seed = self.seed
        if seed is None:  # The op itself would always draw the same.
            seed = tf.random.uniform([], maxval=2**62, dtype=tf.int64)
        with tf.control_dependencies([check]):
            return tf.raw_ops.KmeansPlusPlusInitialization(
                points=points,
                num_to_sample=tf.cast(num_missing, tf.int64),
                seed=tf.cast(seed, tf.int64),
                num_retries_per_sample=tf.constant(self.num_retries, tf.int64),
            )

    def _checked_centers(
        self, centers: Any, points: tf.Tensor, num_missing: tf.Tensor
    ) -> tf.Tensor:
        """Returns the function's centers as floats; computing them fails if they are too many."""
        what = f"`initial_clusters` ({self.initial!r}) returned"
        centers = tf.cast(centers, tf.float32)
        if not centers.shape.is_compatible_with([None, points.shape[1]]):
            raise ValueError(
                f"{what} centers of shape {centers.shape}; it must be [up to the number of missing "
                f"centers, {points.shape[1]}], of the size of the points."
            )
        message = (
            f"{what} more centers than are missing, its second argument. Return at most as many, "
            "as in centers[:num_missing]."
        )
        check = V1.debugging.assert_less_equal(tf.shape(centers)[0], num_missing, message=message)
        with tf.control_dependencies([check]):
            return tf.ensure_shape(centers, [None, points.shape[1]])

    # --- Moving -----------------------------------------------------------------------------------

    def build_move(
        self, points: tf.Tensor, nearest: tf.Tensor, state: ClusteringState
    ) -> tf.Operation:
        """Returns an op that moves the centers to their points, if all are chosen."""

        def move() -> tf.Tensor:
            sums = tf.math.unsorted_segment_sum(points, nearest, self.num_clusters)
            counts = tf.math.bincount(nearest, minlength=self.num_clusters)
            if state.counts is None:
                means = sums / (tf.cast(counts, tf.float32)[:, tf.newaxis] + 1e-6)
                moved = [state.centers.assign(self.normalized(means))]
            else:
                with tf.control_dependencies(self._build_iteration(state)):
                    moved = _build_means(sums, tf.cast(counts, tf.int64), state)
            return _build_after(moved)

        return tf.cond(state.is_chosen, move, lambda: tf.constant(False)).op

    def _build_iteration(self, state: ClusteringState) -> list[tf.Operation]:
        """Returns ops that start an iteration with new centers if the previous one has ended."""
        if state.steps_left is None or state.counts is None:
            return []
        counts, steps_left = state.counts, state.steps_left

        def begin() -> tf.Tensor:
            centers = self.normalized(state.next_centers.read_value())
            assigned = [
                state.centers.assign(centers),
                counts.assign(tf.zeros_like(counts)),
                steps_left.assign(self.num_steps - 1),
            ]
            return _build_after(assigned)

        def count_down() -> tf.Tensor:
            return _build_after([steps_left.assign_sub(1)])

        return [tf.cond(steps_left <= 0, begin, count_down).op]


def _build_after(ops: Sequence[Any]) -> tf.Tensor:
    """Returns a tensor that waits for ops, as the branches of a tf.cond must return one."""
    with tf.control_dependencies(ops):
        return tf.constant(True)


def _build_means(sums: tf.Tensor, counts: tf.Tensor, state: ClusteringState) -> list[tf.Operation]:
    """Returns ops that move each center to the mean of its points so far."""
    before, centers = state.counts.read_value(), state.next_centers.read_value()  # type: ignore[union-attr]
    new = tf.cast(counts, tf.float32)[:, tf.newaxis]
    # Without new points, a center stays even if it has none so far.
    total = tf.cast(tf.maximum(before + counts, 1), tf.float32)[:, tf.newaxis]
    moved = centers + (sums - new * centers) / total
    with tf.control_dependencies([moved]):  # The counts before are read.
        return [
            state.counts.assign_add(counts),  # type: ignore[union-attr]
            state.next_centers.assign(moved),
        ]
