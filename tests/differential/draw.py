"""Draws programs."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.differential import optimizers
from tests.differential.program import (
    EMBEDDINGS,
    LAYERS,
    LOSSES,
    METRICS,
    STRATEGIES,
    Check,
    Counter,
    CrossShard,
    Input,
    Layer,
    Optimizer,
    Part,
    Program,
)

# What TensorFlow or Keras cannot do, with this library or without, is not drawn:
# - Keras optimizers square each gradient of a row that comes twice for itself, so how often it
#   comes, over batches and replicas, shows in the weights; nor can they scale a sparse loss.
# - With CentralStorage a layer can assign nothing in a branch.

INTERVALS = st.sampled_from([None, None, 1, 2, 3, 4, 7])
# Each makes building slower: rarely more than one, and mostly a cheap one.
_LAYERS = st.builds(
    Layer,
    st.sampled_from([*LAYERS, "v1_dense", "keras_dense", "batch_norm"]),
    st.integers(1, 4),
    st.sampled_from([None, "tanh", "relu", "sigmoid"]),
)


@st.composite
def programs(draw):
    """Any program that both the library and its truth can run."""
    cross = draw(st.none() | _cross_shards())
    window = 1 if cross is None else cross.accumulate_steps
    main = draw(st.sampled_from(list(STRATEGIES)))
    parts = draw(_parts(main))
    most = max(STRATEGIES[part.strategy] for part in parts)
    embedding = draw(st.sampled_from(EMBEDDINGS))
    layers = draw(st.lists(_LAYERS, max_size=2))
    loss = draw(st.sampled_from(LOSSES))
    source = draw(_inputs(parts))
    counters = draw(st.lists(_counters(most), max_size=2))
    is_central = any(part.strategy == "central_storage_x2" for part in parts)
    if is_central:
        layers = [layer for layer in layers if not layer.kind.startswith("counting_in")]
    optimizer = draw(_optimizers(loss, cross))
    is_scaled = "loss_scale_factor" in dict(optimizer.options)
    if optimizer.api == "keras" and (is_scaled or (window > 1 and most > 1)):
        embedding = None
    return Program(
        layers=tuple(layers),
        embedding=embedding,
        output=draw(st.sampled_from(["v1_dense", "keras_dense"])),
        loss=loss,
        l2=draw(st.sampled_from([0.0, 0.0, 0.01])),
        average_decay=draw(st.sampled_from([None, None, None, 0.5])),
        counters=tuple(counters),
        optimizer=optimizer,
        cross=cross,
        input=source,
        parts=parts,
        check=draw(_checks(main)),
    )


@st.composite
def _cross_shards(draw):
    return CrossShard(
        reduction=draw(st.sampled_from(["mean", "mean", "sum"])),
        accumulate_steps=draw(st.sampled_from([1, 1, 2, 3])),
        clip_norm=draw(st.sampled_from([None, None, 0.1, 1.0])),
    )


@st.composite
def _optimizers(draw, loss, cross):
    api = draw(st.sampled_from(["v1", "keras"]))
    table = optimizers.V1_OPTIONS if api == "v1" else optimizers.KERAS_OPTIONS
    name = draw(st.sampled_from(sorted(table)))
    options = []
    for option, values in sorted(table[name].items()):
        if option in optimizers.CLIPS and any("clip" in key for key, _ in options):
            continue
        if option in optimizers.REQUIRED.get(name, ()) or draw(st.integers(0, 3)) == 0:
            options.append((option, draw(st.sampled_from(values))))
    if ("nesterov", True) in options and "momentum" not in dict(options):
        options.remove(("nesterov", True))
    is_sum = loss in ("sum", "v1_sum") or (cross is not None and cross.reduction == "sum")
    rate = draw(st.sampled_from([0.01, 0.05] if is_sum else [0.05, 0.2]))
    schedule = draw(st.sampled_from([None, None, "exponential", "piecewise"]))
    return Optimizer(api, name, rate, schedule, tuple(options))


@st.composite
def _counters(draw, num_replicas):
    wired = ["train_op", "update_ops", "loss"]
    rules = ["first", "sum", "mean", "sum_on_read", "mean_on_read"]
    if num_replicas == 1:
        rules = ["first"]
        wired += ["while", "function", "cond"]
    how = draw(st.sampled_from(wired))
    if how == "loss":
        rules = rules[:3]
    amount = draw(st.sampled_from(["one", "rows", "mean"]))
    return Counter(amount, how, draw(st.sampled_from(rules)))


@st.composite
def _parts(draw, main):
    parts, end = [], 0
    for i in range(draw(st.sampled_from([1, 1, 2, 2, 3]))):
        number = draw(st.sampled_from([None, 1, 2, 3, 5, 8]))
        is_steps = draw(st.booleans())
        # Sometimes not beyond where training is already.
        end += (number or 4) if draw(st.integers(0, 7)) else 0
        is_new = i > 0 and draw(st.booleans())
        if i > 0 and not is_new:
            part = parts[-1].replace(steps=number, max_steps=None, is_new_object=False)
        else:
            part = draw(_configs(main if draw(st.booleans()) else None, number))
        if number is not None and not is_steps and end > 0:
            part = part.replace(steps=None, max_steps=end)
        parts.append(part)
    return tuple(parts)


@st.composite
def _configs(draw, strategy, steps):
    return Part(
        steps=steps,
        strategy=strategy,
        loop=draw(st.sampled_from([1, 1, 2, 3, 5, 100])),
        save_every=draw(INTERVALS),
        summary_every=draw(INTERVALS),
        log_every=draw(INTERVALS),
        keep=draw(st.sampled_from([None, 1, 2, 5])),
        resume_input=draw(st.sampled_from([True, True, True, False])),
    )


@st.composite
def _inputs(draw, parts):
    must_end = any(part.steps is None and part.max_steps is None for part in parts)
    source = draw(st.sampled_from(["slices", "slices", "numpy"]))
    is_plain = source == "slices"
    return Input(
        num_examples=draw(st.integers(4, 40)),
        batch_size=draw(st.sampled_from([1, 2, 3, 4, 5])),
        epochs=draw(st.sampled_from([1, 2] if must_end else [1, 2, None, None])),
        drop_remainder=is_plain and draw(st.booleans()),
        shuffle_seed=draw(st.sampled_from([None, None, 7])) if is_plain else None,
        prefetch=draw(st.sampled_from([0, 0, 2])) if is_plain else 0,
        source=source,
    )


@st.composite
def _checks(draw, strategy):
    if draw(st.integers(0, 4)) == 0:
        return None
    return Check(
        num_examples=draw(st.integers(1, 20)),
        batch_size=draw(st.sampled_from([1, 3, 4])),
        steps=draw(st.sampled_from([None, None, 1, 2])),
        metrics=tuple(draw(st.lists(st.sampled_from(METRICS), max_size=2, unique=True))),
        of_oldest=draw(st.booleans()),
        predicts=draw(st.integers(0, 2)) == 0,
        strategy=draw(st.sampled_from([None, strategy])),
    )
