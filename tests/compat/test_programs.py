"""Programs as they were written for TensorFlow 1.15 run as they are: `python -m estimator.compat`.

Those in `programs/` are for this repository. Each runs in a process of its own, since flags and the
v1 behavior are for a whole process.
"""

import contextlib
import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from tests.forked import OldProgram
from tests.integration.cluster import make_addresses, tf_config

PROGRAMS = pathlib.Path(__file__).with_name("programs")
DIGITS = "input_pipelines/mnist_5k/mnist_5k.npz"


def run(name, *flags):
    """Runs a program to its end; returns what it printed to stdout."""
    with OldProgram(PROGRAMS / name, *flags) as program:
        return end(program)


def end(program):
    assert program.status(280) == 0, program.err[-4000:]
    return program.out


def scalars(folder):
    """The steps of each tag in a directory's event files, and its values."""
    found = {}
    for path in pathlib.Path(folder).glob("events*"):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                array = tf.make_ndarray(value.tensor) if value.HasField("tensor") else None
                number = value.simple_value if array is None else array.item()
                found.setdefault(value.tag, {})[event.step] = number
    return found


def test_mnist_with_a_tpu_estimator_and_tf_layers(tmp_path):
    printed = run(
        "mnist_tpu.py",
        f"--data={DIGITS}",
        f"--model_dir={tmp_path}",
        f"--predict_file={tmp_path / 'digits.txt'}",
        *("--batch_size=50", "--train_steps=60", "--iterations=30", "--eval_steps=20"),
        "--num_shards=1",
    )
    results = dict(line.split(" = ") for line in printed.splitlines() if " = " in line)
    assert int(results["global_step"]) == 60
    assert results["accuracy"] == results["hits"]
    assert float(results["accuracy"]) > 0.6
    predictions = [line.split() for line in (tmp_path / "digits.txt").read_text().splitlines()]
    with np.load(DIGITS) as arrays:
        labels = arrays["test_labels"][:10]
    right = sum(
        int(number) == label for (number, _), label in zip(predictions, labels, strict=True)
    )
    assert right >= 5
    names = [name for name, _ in tf.train.list_variables(str(tmp_path))]
    assert {"conv2d/kernel", "dense/kernel", "dense_1/bias", "global_step"} <= set(names)


def test_a_network_of_slim_with_arg_scopes(tmp_path):
    printed = run("slim_digits.py", f"--data={DIGITS}", f"--model_dir={tmp_path}", "--steps=40")
    built, results = map(json.loads, printed.splitlines())
    # conv2 is of tf.contrib.layers, the others of slim.
    layers = ("block1/conv1", "block1/conv2", "block1/shortcut", "more/more_1", "more/more_2")
    assert [name.split("/")[:2] for name in built["regularized"]] == [x.split("/") for x in layers]
    parts = ("BatchNorm/beta", "BatchNorm/gamma", "weights")
    trained = [
        *(f"{x}/{part}" for x in layers for part in parts),
        "logits/biases",
        "logits/weights",
    ]
    moving = [f"{x}/BatchNorm/moving_{of}" for x in layers for of in ("mean", "variance")]
    expected = [*trained, *(f"{name}/Momentum" for name in trained), *moving, "global_step"]
    assert results["variables"] == sorted(expected)
    assert results["moving"] > 0
    assert results["accuracy"] > 0.5
    assert results["frozen"] > 200


def test_a_transformer_in_the_shape_of_bert(tmp_path):
    run(
        "bert_like.py",
        f"--output_dir={tmp_path}",
        *("--do_train", "--do_eval", "--do_predict", "--num_train_steps=12"),
        *("--save_checkpoints_steps=6", "--iterations_per_loop=4", "--num_tpu_cores=1"),
    )
    lines = (tmp_path / "eval_results.txt").read_text().splitlines()
    results = {name: float(value) for name, value in (line.split(" = ") for line in lines)}
    assert set(results) == {"eval_accuracy", "eval_loss", "global_step", "loss"}
    assert results["global_step"] == 12
    rows = (tmp_path / "test_results.tsv").read_text().splitlines()
    probabilities = np.array([line.split("\t") for line in rows], float)
    assert probabilities.shape == (13, 2)
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-5)
    checkpoint = tf.train.load_checkpoint(str(tmp_path))
    shapes = checkpoint.get_variable_to_shape_map()
    layer = "bert/encoder/layer_1/output"
    assert shapes[f"{layer}/LayerNorm/gamma"] == shapes[f"{layer}/LayerNorm/gamma/adam_m"] == [16]
    assert (tmp_path / "model.ckpt-6.index").exists()

    # Features of another graph without a head, which starts from the checkpoint.
    run(
        "bert_like.py",
        f"--output_dir={tmp_path / 'features'}",
        f"--init_checkpoint={tmp_path / 'model.ckpt-12'}",
        "--do_extract",
    )
    lines = (tmp_path / "features" / "features.txt").read_text().splitlines()
    assert [line.split()[0] for line in lines] == ["1000", "1001", "1002", "1003", "1004"]
    first = np.array([line.split()[1:] for line in lines], float)
    # The last op is a layer_norm, so each row says which variables were loaded.
    gamma = checkpoint.get_tensor(f"{layer}/LayerNorm/gamma")
    beta = checkpoint.get_tensor(f"{layer}/LayerNorm/beta")
    normal = (first - beta) / gamma
    np.testing.assert_allclose(normal.mean(1), 0, atol=1e-4)
    np.testing.assert_allclose(normal.std(1), 1, atol=1e-3)


def test_a_resnet_with_host_call_summaries_and_bfloat16(tmp_path):
    printed = run(
        "resnet_host_call.py",
        f"--data={DIGITS}",
        f"--model_dir={tmp_path}",
        f"--export_dir={tmp_path / 'export'}",
        *("--train_steps=6", "--steps_per_eval=3", "--iterations_per_loop=3", "--num_cores=1"),
        "--train_batch_size=16",
    )
    assert [line.split(" top_5")[0] for line in printed.splitlines()[:2]] == ["step 3", "step 6"]
    events = scalars(tmp_path)
    assert {tag for tag in events if tag.startswith("host/")} == {
        "host/loss",
        "host/learning_rate",
        "host/entropy",
    }
    assert len(events["host/loss"]) == 6
    assert max(events["host/learning_rate"].values()) == pytest.approx(0.05)
    moving = tf.train.load_variable(str(tmp_path), "batch_normalization/moving_mean")
    assert np.abs(moving).max() > 0
    exported = printed.splitlines()[-1].removeprefix("exported ")
    serve = tf.saved_model.load(exported).signatures["classify"]
    assert serve(images=tf.zeros([2, 28, 28, 1]))["probabilities"].shape == [2, 10]


def test_wide_and_deep_with_exporters_and_a_hook(tmp_path):
    (tmp_path / "data").mkdir()
    printed = run(
        "wide_deep.py", f"--data_dir={tmp_path / 'data'}", f"--model_dir={tmp_path / 'm'}"
    )
    lines = printed.splitlines()
    assert "hook saw 20 calls from 0 to 20" in lines
    results = dict(line.split(": ") for line in lines if ": " in line)
    assert results["global_step"] == "20"
    assert float(results["accuracy"]) > float(results["accuracy_baseline"])
    assert results["rate"] == results["prediction/mean"]
    assert lines[-2:] == ["export best", "export latest"]
    evaluated = scalars(tmp_path / "m" / "eval")["accuracy"]
    assert list(evaluated) == [10, 20]


def test_a_tagger_with_a_crf_tables_averages_and_a_predictor(tmp_path):
    accuracy, tags = run("tagger.py", str(tmp_path)).splitlines()
    assert float(accuracy.removeprefix("accuracy ")) > 0.7
    # "the dog likes the river", of which the last word is not in the vocabulary.
    assert tags == "tags O N V O N" or tags.startswith("tags O N")
    names = {name for name, _ in tf.train.list_variables(str(tmp_path / "model"))}
    assert {"crf", "crf/ExponentialMovingAverage"} <= names
    assert {"lstm_fused_cell/kernel", "lstm_fused_cell_1/bias"} <= names
    evaluated = scalars(tmp_path / "model" / "eval")
    assert list(evaluated["acc"]) == [15, 30]
    assert evaluated["acc"][30] == pytest.approx(float(accuracy.split()[1]), abs=1e-3)


def test_a_master_a_worker_and_a_parameter_server(tmp_path):
    addresses = make_addresses(master=1, worker=1, ps=1)
    flags = f"--job_dir={tmp_path}", "--hparams=learning_rate=0.3,hidden_units=6"
    with contextlib.ExitStack() as stack:
        tasks = {}
        for role in addresses:
            config = tf_config(addresses, role, 0)
            program = OldProgram(PROGRAMS / "parameter_server.py", *flags, TF_CONFIG=config)
            tasks[role] = stack.enter_context(program)
        printed = {role: end(program) for role, program in tasks.items()}
    assert printed["worker"] == "worker done\n"
    assert printed["ps"] == "ps done\n"
    result = printed["master"].split()
    assert result[:2] == ["master:", "rmse"]
    assert int(result[-1]) >= 30
    shapes = dict(tf.train.list_variables(str(tmp_path)))
    assert shapes["net/fully_connected/weights"] == [3, 6]
    assert "OptimizeLoss/net/fully_connected/weights/part_0/Adagrad" not in shapes


def test_a_keras_model_starts_as_it_is_and_learns(tmp_path):
    results = json.loads(run("keras_model.py", f"--model_dir={tmp_path}").splitlines()[-1])
    assert results["before"] == pytest.approx(results["keras"], rel=1e-5)
    assert results["after"][0] < results["before"][0]
    assert results["steps"] == 20
