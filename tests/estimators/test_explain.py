"""What an estimator says of itself, before it has built or written anything."""

import functools
import os
import textwrap

import pytest
import tensorflow as tf

import estimator as est
from tests.toy import Model, numbers


def model_fn(features, labels, mode):
    raise AssertionError("A graph is built.")


def explained(model, capsys, **arguments):
    """The rows of each verb, and the title."""
    assert model.explain(**arguments) is None
    title, *lines = capsys.readouterr().out.splitlines()
    rows: dict = {}
    for line in lines:
        assert line.startswith("  ")
        name, row = line[2:13].strip(), line[13:]
        rows.setdefault(name or list(rows)[-1], []).append(row)
    return title, rows


def test_all_that_will_happen_is_told_without_a_graph_or_a_directory(tmp_path, capsys):
    model_dir = str(tmp_path / "model")
    config = est.tpu.RunConfig(
        est.tpu.TPUConfig(iterations_per_loop=50),
        strategy="mirrored",
        num_replicas=2,
        save_checkpoints_steps=500,
        save_summary_steps=20,
        log_step_count_steps=1000,
        profile_steps=(100, 110),
    )
    model = est.tpu.TPUEstimator(
        model_fn, model_dir, config, train_batch_size=64, eval_batch_size=10
    )
    title, rows = explained(model, capsys, max_steps=2000)
    assert title == f"TPUEstimator of {__name__}.model_fn in {model_dir}"
    place = "2 replicas (mirrored) on CPU:0, CPU:1; "
    unknown = place + "batches as `input_fn` makes them, one a replica"
    assert rows == {
        "train": [
            "from step 0 to step 2,000",
            place + "batches of 2 x 32 = 64 examples",
            "50 steps a session call, less where one of the following is due",
            "checkpoints every 500 steps and at the end; the newest 5 are kept",
            "summaries every 20 steps",
            "speed and loss every 1,000 steps",
            "a profile of steps 101 to 110",
            'a loss that is not finite: nan_policy="raise"',
        ],
        "evaluate": [
            f"the newest checkpoint, once there is one; events in {model_dir}/eval",
            place + "batches of 2 x 5 = 10 examples",
        ],
        "predict": ["the newest checkpoint, once there is one", unknown],
    }
    assert os.listdir(tmp_path) == []


def test_without_anything_set_the_defaults_are_told(tmp_path, capsys):
    _, rows = explained(est.Estimator(model_fn, str(tmp_path)), capsys)
    assert rows["train"] == [
        "from step 0 to the end of the input",
        "1 replica on CPU:0; batches as `input_fn` makes them, one a replica",
        "1 step a session call",
        "checkpoints every 600 s and at the end; the newest 5 are kept",
        "summaries every 100 steps",
        "speed and loss every 100 steps",
        'a loss that is not finite: nan_policy="raise"',
    ]


def test_what_never_happens_is_told(tmp_path, capsys):
    config = est.RunConfig(
        save_checkpoints_steps=None,
        save_checkpoints_secs=None,
        save_summary_steps=0,
        log_step_count_steps=None,
        keep_checkpoint_max=0,
    )
    _, rows = explained(est.Estimator(model_fn, str(tmp_path), config), capsys)
    assert rows["train"][3:6] == [
        "checkpoints only at the end; all are kept",
        "summaries never",
        "speed and loss never",
    ]


def test_precision_compilation_times_and_broadcast_are_told(tmp_path, capsys):
    broadcast = est.tpu.InputPipelineConfig.BROADCAST
    config = est.tpu.RunConfig(
        est.tpu.TPUConfig(iterations_per_loop="2m", per_host_input_for_training=broadcast),
        strategy="mirrored",
        num_replicas=2,
        compute_dtype="bfloat16",
        jit_compile=True,
        max_time_secs=90,
    )
    model = est.tpu.TPUEstimator(model_fn, str(tmp_path), config, train_batch_size=32)
    _, rows = explained(model, capsys)
    assert rows["train"][1:4] == [
        "2 replicas (mirrored) on CPU:0, CPU:1; batches of the same 32 examples on each replica; "
        "bfloat16; compiled by XLA",
        "about 2 m a session call, less where one of the following is due",
        "until 90 s have gone by, at the latest",
    ]


def test_a_smoke_run_tells_of_two_steps_in_a_directory_of_its_own(tmp_path, capsys):
    config = est.RunConfig(smoke=True)
    title, rows = explained(est.Estimator(model_fn, str(tmp_path), config), capsys, max_steps=99)
    assert str(tmp_path) not in title
    assert rows["train"][0] == "from step 0 to step 2"


@pytest.mark.parametrize(
    ("arguments", "row"),
    [
        ({"steps": 5}, "from {0}-3 to step 8; the input resumes"),
        ({"max_steps": 9}, "from {0}-3 to step 9; the input resumes"),
        ({}, "from {0}-3 to the end of the input; the input resumes"),
        ({"max_steps": 3}, "nothing: the global step is 3, and `max_steps` is 3"),
    ],
    ids=str,
)
def test_where_it_resumes_is_told(arguments, row, tmp_path, capsys):
    model = est.Estimator(Model(), str(tmp_path))
    model.train(numbers(), steps=3)
    _, rows = explained(model, capsys, **arguments)
    path = str(tmp_path / "model.ckpt")
    assert rows["train"][0] == row.format(path)
    assert rows["evaluate"][0].startswith(f"{path}-3; events in ")
    assert rows["predict"][0] == f"{path}-3"


def test_a_warm_start_and_an_input_that_starts_anew_are_told(tmp_path, capsys):
    model = est.Estimator(Model(), str(tmp_path / "old"), est.RunConfig(resume_input=False))
    model.train(numbers(), steps=3)
    _, rows = explained(model, capsys)
    assert rows["train"][0].endswith("-3 to the end of the input; the input restarts")
    new = est.Estimator(Model(), str(tmp_path / "new"), warm_start_from=str(tmp_path / "old"))
    _, rows = explained(new, capsys, steps=7)
    assert rows["train"][0] == f"from step 0 to step 7, with a warm start from {tmp_path}/old"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "1 replica on CPU:0"),
        ({"strategy": "one_device"}, "1 replica (one_device) on CPU:0"),
        (
            {"strategy": "mirrored", "num_replicas": 3},
            "3 replicas (mirrored) on CPU:0, CPU:1, CPU:2",
        ),
        (
            {"strategy": "central_storage", "num_replicas": 2},
            "2 replicas (central_storage) on CPU:0, CPU:1",
        ),
        ({"device": "/cpu:1"}, "1 replica (one_device) on CPU:1"),
    ],
    ids=str,
)
def test_the_devices_are_told_for_each_strategy(fields, said, tmp_path, capsys):
    if "device" in fields:  # A strategy object, which pytest-xdist must not see in a name.
        fields = {"train_distribute": tf.distribute.OneDeviceStrategy(fields["device"])}
    model = est.Estimator(model_fn, str(tmp_path), est.RunConfig(**fields))
    assert explained(model, capsys)[1]["train"][1].startswith(said + "; ")


def rated(features, labels, mode, params):
    """A `model_fn` that takes `params`."""


def test_the_repr_is_a_line_if_it_is_short_and_a_few_if_not(tmp_path):
    assert repr(est.Estimator(model_fn, "m")) == (
        f"Estimator(model_fn={__name__}.model_fn, config=RunConfig(model_dir='m'))"
    )
    config = est.RunConfig(
        session_config=tf.compat.v1.ConfigProto(log_device_placement=True, device_count={"CPU": 2}),
        train_distribute=tf.distribute.OneDeviceStrategy("/cpu:0"),
    )
    model = est.Estimator(functools.partial(rated), "m", config, params={"rate": 0.1})
    assert repr(model) == textwrap.dedent(f"""\
        Estimator(
            model_fn=partial of {__name__}.rated,
            config=RunConfig(
                model_dir='m',
                session_config=<ConfigProto device_count {{ key: "CPU" value: 2 }} log_device_placement: true>,
                train_distribute=<OneDeviceStrategy of 1>,
            ),
            params={{'rate': 0.1}},
        )""")  # noqa: E501
    sized = est.tpu.TPUEstimator(model_fn, "m", train_batch_size=8, predict_batch_size=2)
    assert repr(sized).endswith(
        "\n    config=tpu.RunConfig(model_dir='m', iterations_per_loop=2),"
        "\n    train_batch_size=8,\n    predict_batch_size=2,\n)"
    )
    long_dir = "m" * 200
    assert "model_fn=<Model>," in repr(est.Estimator(Model(), long_dir))
    many = {f"key_{i}": i for i in range(1000)}
    assert len(repr(est.Estimator(rated, "m", params=many))) < 250


def test_a_subclass_may_have_an_explain_of_its_own(tmp_path):
    class Explained(est.Estimator):
        def explain(self):
            return "mine"

    assert Explained(model_fn, str(tmp_path)).explain() == "mine"
