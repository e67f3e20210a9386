import ast
import glob
import json
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from absl import app, flags
from absl.testing import flagsaver
from tensorflow.python.tools import saved_model_cli

import estimator as est
import run_mnist
from input_pipelines import mnist
from models import mnist_cnn
from tests.forked import Program
from tests.old_versions import obeys_log_level

TASK = ["--job_name=worker", "--task_index=0", "--worker_hosts=a:1,b:1", "--ps_hosts=c:1"]
ROOT = pathlib.Path(run_mnist.__file__).parent


def run_process(*args):
    """Runs run_mnist.py as a process; returns what it wrote to stdout and to stderr."""
    command = [sys.executable, str(ROOT / "run_mnist.py"), *args]
    process = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert process.returncode == 0, process.stderr
    return process.stdout, process.stderr


def read_table(stdout):
    _, _, table = stdout.rpartition("\nsteps")
    return {row[:12].strip(): row[13:] for row in f"steps{table}".splitlines()}


def run(*args):
    """Runs run_mnist.py in a fork; returns its table."""
    with Program(str(ROOT / "run_mnist.py"), *args) as program:
        assert program.status(240) == 0, program.err
        return read_table(program.out)


class Runs:
    """Where two runs of the script left what they made, and their tables."""

    def __init__(self, folder):
        self.model_dir, self.data_dir = str(folder / "model"), str(folder / "data")
        args = [f"--model_dir={self.model_dir}", f"--data_dir={self.data_dir}", "--seed=1"]
        args += ["--batch_size=32", "--iterations=10", "--save_checkpoints_steps=10"]
        args += ["--save_summary_steps=10"]
        self.first = run("--mode=train", "--train_steps=20", *args)
        stdout, self.stderr = run_process("--mode=all", "--train_steps=40", *args)
        self.second = read_table(stdout)

    def make_eval_input_fn(self):
        return mnist.make_input_fn("mnist_5k", "test", data_dir=self.data_dir)

    def read_images(self):
        """The test digits as they are stored: uint8 [1000, 28, 28, 1]."""
        builder = mnist.prepare("mnist_5k", self.data_dir)
        digits = mnist.read_examples(builder, "test").batch(1000)
        return next(digits.as_numpy_iterator())[0]

    def predict_classes(self):
        config = est.tpu.RunConfig(model_dir=self.model_dir)
        with est.tpu.TPUEstimator(
            mnist_cnn.model_fn, config=config, predict_batch_size=100
        ) as classifier:
            return [p["classes"] for p in classifier.predict(self.make_eval_input_fn())]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return Runs(tmp_path_factory.mktemp("run_mnist"))


def read_events(folder):
    """Yields (step, value) of every summary in the folder."""
    for path in sorted(glob.glob(os.path.join(folder, "events*"))):
        for event in tf.compat.v1.train.summary_iterator(path):
            for value in event.summary.value:
                yield event.step, value


@pytest.mark.slow
def test_a_second_run_goes_on_from_the_checkpoint(runs):
    assert runs.first["steps"] == "20"
    assert runs.second["steps"] == "40"
    assert runs.second["checkpoint"] == os.path.join(runs.model_dir, "model.ckpt-40")
    steps = [step for step, value in read_events(runs.model_dir) if value.tag == "loss"]
    assert sorted(set(steps)) == sorted(steps)
    assert set(steps) >= {10, 20, 30, 40}


def test_tensorboard_shows_the_training(runs):
    tags = {value.tag for _, value in read_events(runs.model_dir)}
    assert tags >= {"loss", "accuracy", "learning_rate", "global_step/sec"}


def test_the_accuracy_is_that_of_the_predictions(runs):
    with np.load(ROOT / "input_pipelines" / "mnist_5k" / "mnist_5k.npz") as arrays:
        assert len(arrays["test_labels"]) == 1000
    labels = [
        int(label)
        for _, batch in runs.make_eval_input_fn()({"batch_size": 100}).as_numpy_iterator()
        for label in batch
    ]
    hits = sum(a == b for a, b in zip(labels, runs.predict_classes(), strict=True))
    assert runs.second["accuracy"].startswith(f"{hits / 1000:.4f} (on mnist_5k's own test digits")
    assert runs.second["digits"] == " ".join(map(str, labels[:10]))


def test_a_grid_of_misclassified_digits_is_written(runs):
    eval_dir = os.path.join(runs.model_dir, "eval")
    images = [
        (step, tf.make_ndarray(value.tensor))
        for step, value in read_events(eval_dir)
        if value.tag.startswith("misclassified")
    ]
    ((step, (width, height, _)),) = images
    assert (step, int(width), int(height)) == (40, 240, 240)
    assert {"accuracy", "loss"} <= {value.tag for _, value in read_events(eval_dir)}


def test_the_saved_model_gives_the_same_classes_in_a_clean_process(runs, tmp_path):
    np.save(tmp_path / "images.npy", runs.read_images())
    code = (
        "import sys, numpy as np, tensorflow as tf\n"
        "model = tf.saved_model.load(sys.argv[1]).signatures['serving_default']\n"
        "classes = model(image=tf.constant(np.load(sys.argv[2])))['classes']\n"
        "assert 'estimator' not in sys.modules\n"
        "print(*classes.numpy())"
    )
    command = [sys.executable, "-c", code, runs.second["SavedModel"], tmp_path / "images.npy"]
    process = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert list(map(int, process.stdout.split())) == runs.predict_classes()


def test_saved_model_cli_gives_the_same_classes(runs, tmp_path):
    np.save(tmp_path / "images.npy", runs.read_images())
    command = [saved_model_cli.__file__, "run"]
    command += ["--dir", runs.second["SavedModel"], "--tag_set", "serve"]
    command += ["--signature_def", "serving_default", "--inputs", f"image={tmp_path}/images.npy"]
    with Program(*command, "--outdir", tmp_path) as program:
        assert program.status() == 0, program.err
    assert np.load(tmp_path / "classes.npy").tolist() == runs.predict_classes()


def test_tfrecord_files_train_and_evaluate_the_other_model(runs, tmp_path):
    for split in ("train[:200]", "test[:150]"):
        files = [f"--output={tmp_path / split[:4]}", f"--data_dir={runs.data_dir}"]
        with Program(str(ROOT / "input_pipelines/tfrecord.py"), f"--split={split}", *files) as made:
            assert made.status() == 0, made.err
    table = run(
        "--model=mnist_mlp",
        f"--model_dir={tmp_path / 'model'}",
        f"--train_file={tmp_path / 'trai'}",
        f"--eval_file={tmp_path / 'test'}",
        "--train_steps=30",
        "--strategy=mirrored",
        "--num_replicas=2",
    )
    assert table["steps"] == "30"
    assert re.fullmatch(r"0\.\d{4}", table["accuracy"])
    assert float(table["accuracy"]) * 150 == pytest.approx(
        round(float(table["accuracy"]) * 150), abs=0.01
    )


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--learning_rate=0"], "--learning_rate must be finite and greater than 0"),
        (["--learning_rate=inf"], "--learning_rate must be finite and greater than 0"),
        (["--train_steps=0"], "train_steps"),
        (["--iterations=-1"], "iterations"),
        (["--model=mnist_rnn"], "should be one of <mnist_cnn|mnist_mlp>"),
        (["--tpu=here"], "--tpu needs --use_tpu"),
        (["--use_tpu", "--tpu=here", "--master=there"], "takes the place of --master"),
        ([*TASK, "--use_tpu"], "--job_name excludes --tpu, --use_tpu and --master"),
        ([*TASK, "--master=there"], "--job_name excludes --tpu, --use_tpu and --master"),
    ],
)
def test_a_wrong_flag_is_refused(args, message):
    with flagsaver.flagsaver(), pytest.raises(flags.Error, match=re.escape(message)):
        flags.FLAGS(["run_mnist.py", *args])


def test_every_flag_has_a_help_text():
    for flag in flags.FLAGS.flags_by_module_dict()["run_mnist"]:
        assert flag.help.endswith("."), flag.name


def test_the_grid_shows_the_digits_in_their_places(tmp_path):
    ones = np.full([28, 28, 1], 0.5, np.float32)
    run_mnist.write_mistakes(str(tmp_path), [ones] * 10, step=3)
    ((step, value),) = read_events(tmp_path)
    grid = tf.io.decode_png(tf.make_ndarray(value.tensor)[2])[..., 0].numpy()
    assert (step, grid.shape) == (3, (240, 240))
    tiles = grid.reshape(8, 30, 8, 30).transpose(0, 2, 1, 3).reshape(64, 30, 30)[:, 1:-1, 1:-1]
    assert [int(tile.min()) for tile in tiles] == [255] * 10 + [0] * 54
    assert [int(tile.max()) for tile in tiles] == [255] * 10 + [0] * 54


@obeys_log_level
def test_nothing_but_the_librarys_lines_shows(runs):
    """TensorFlow says much while it is imported, and TFDS when it reads."""
    starts = [re.sub(r"[\d,]+", "N", line).split(":")[0] for line in runs.stderr.splitlines()]
    path = re.escape(runs.model_dir)
    assert re.fullmatch(r"Training in .* from step N \(model\.ckpt-N\) to N", starts[0])
    assert starts[1:3] == ["step N of N", "step N of N"]
    assert starts[3:5] == ["Training stopped at step N (max_steps)", "TensorBoard"]
    assert [re.sub(rf"{path}.*", "", line) for line in runs.stderr.splitlines()[5:]] == [
        "Evaluated ",
        "Predicting with ",
        "SavedModel written to ",
    ]


def test_the_program_opens_with_its_model_and_trainer():
    """It is what newcomers read first."""
    body = ast.parse((ROOT / "run_mnist.py").read_text()).body
    first = next(
        node for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.With)
    )
    assert (type(first), first.name) == (ast.FunctionDef, "make_classifier")


def test_what_an_import_says_before_it_fails_is_shown(tmp_path):
    broken = "import os\nos.write(2, b'no such instruction')\nraise ImportError('broken')\n"
    (tmp_path / "tensorflow.py").write_text(broken)
    process = subprocess.run(
        [sys.executable, str(ROOT / "run_mnist.py")],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert process.returncode == 1
    assert "no such instruction" in process.stderr
    assert process.stderr.endswith("ImportError: broken\n")


CLUSTER = {"worker": ["a:1", "b:1"], "ps": ["c:1"]}


def config_of(args, tf_config=None):
    """The RunConfig of run_mnist.py with these flags, and with TF_CONFIG."""
    with flagsaver.flagsaver(), pytest.MonkeyPatch.context() as patch:
        patch.delenv("TF_CONFIG", raising=False)
        if tf_config is not None:
            patch.setenv("TF_CONFIG", tf_config)
        flags.FLAGS(["run_mnist.py", *args])
        return run_mnist.make_classifier().config


def test_the_classic_flags_are_the_cluster_of_tf_config(tmp_path):
    model_dir = f"--model_dir={tmp_path}"
    for role, index in (("worker", 0), ("worker", 1), ("ps", 0), ("evaluator", 0)):
        tf_config = json.dumps({"cluster": CLUSTER, "task": {"type": role, "index": index}})
        task = [f"--job_name={role}", f"--task_index={index}", *TASK[2:]]
        assert config_of([model_dir, *task]).cluster == config_of([model_dir], tf_config).cluster


@pytest.mark.parametrize(
    ("args", "tf_config", "message"),
    [
        (TASK, json.dumps({"cluster": CLUSTER, "task": {"type": "ps"}}), "exclude each other"),
        (["--sync_replicas"], None, "--sync_replicas needs a cluster with parameter servers"),
        ([*TASK[:2], "--worker_hosts=a:1", "--sync_replicas"], None, "parameter servers"),
        ([*TASK, "--mode=predict"], None, "--mode=predict is not for a cluster"),
        ([*TASK, "--mode=eval"], None, "--mode=eval is not for a cluster"),
        ([*TASK, "--mode=export"], None, "--mode=export is not for a cluster"),
        ([*TASK, "--export_dir=there"], None, "--export_dir is not for a cluster"),
        (["--job_name=evaluator", *TASK[1:], "--mode=train"], None, "pass --mode=all"),
    ],
)
def test_flags_that_do_not_fit_the_cluster_are_refused(tmp_path, args, tf_config, message):
    with pytest.raises(app.UsageError, match=re.escape(message)):
        config_of([f"--model_dir={tmp_path}", *args], tf_config)


@pytest.mark.parametrize("task", [[], TASK])
@pytest.mark.parametrize("num_aggregated", [None, 3])
def test_sync_replicas_says_how_many_gradients_make_an_update(task, num_aggregated):
    args = [*task, "--sync_replicas"] if task else []
    args += [f"--replicas_to_aggregate={num_aggregated}"] if task and num_aggregated else []
    with flagsaver.flagsaver():
        flags.FLAGS(["run_mnist.py", *args])
        params = run_mnist.make_params(config_of(args))
    names = {"replicas_to_aggregate", "num_workers", "is_chief"}
    found = {name: value for name, value in params.items() if name in names}
    expected = {"replicas_to_aggregate": num_aggregated or 2, "num_workers": 2, "is_chief": True}
    assert found == (expected if task else {})


@pytest.mark.parametrize(
    ("role", "mode", "verbs"),
    [
        (None, "all", [run_mnist.train, run_mnist.evaluate, run_mnist.predict, run_mnist.export]),
        (None, "train", [run_mnist.train]),
        ("worker", "all", [run_mnist.train_and_evaluate]),
        ("worker", "train", [run_mnist.train]),
        ("ps", "all", [run_mnist.train_and_evaluate]),
        ("ps", "train", [run_mnist.train_and_evaluate]),
        ("evaluator", "all", [run_mnist.train_and_evaluate]),
    ],
)
def test_each_task_does_its_part(tmp_path, role, mode, verbs):
    task = [] if role is None else [f"--job_name={role}", *TASK[1:]]
    args = [f"--model_dir={tmp_path}", f"--mode={mode}", *task]
    with flagsaver.flagsaver():
        flags.FLAGS(["run_mnist.py", *args])
        assert run_mnist.choose_verbs(config_of(args)) == verbs
