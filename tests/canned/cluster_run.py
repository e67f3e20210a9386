"""What the tasks of a test's cluster run; each result is a line of JSON on stdout.

python cluster_run.py together MODEL_DIR CASE LOOP
python cluster_run.py partitioned MODEL_DIR
"""

import json
import sys

import tensorflow as tf

import estimator as est
from estimator.roles.ps_task import serve_parameters
from tests.canned import model_cases, reference_data

V1 = tf.compat.v1
# The trainings on a ps task, by size of the loop: at which step each stops. A second one resumes.
PARTITIONED = {1: [30], 100: [30, 60]}


def say(**values):
    print(json.dumps(values), flush=True)


def together(model_dir, name, loop):
    """Two workers take the steps of one."""
    config = {"strategy": "multi_worker_mirrored", "iterations_per_loop": int(loop)}
    with reference_data.make(name, model_dir, **config) as model:
        model.train(reference_data.input_fn(name), max_steps=model_cases.NUM_STEPS)


def make_partitioned(model_dir, **config):
    """A deep model of v1 whose embeddings are in two parts."""
    return est.compat.v1.DNNClassifier(
        [4],
        model_cases.dense_columns(),
        model_dir,
        input_layer_partitioner=V1.fixed_size_partitioner(2),
        config=est.RunConfig(save_summary_steps=None, tf_random_seed=1, **config),
    )


def partitioned(model_dir):
    """Workers train at their own pace; a ps task has the parts of embeddings."""
    if est.RunConfig().task_type == "ps":
        sys.exit(serve_parameters(est.RunConfig()))
    for loop, trainings in PARTITIONED.items():
        with make_partitioned(f"{model_dir}/loop{loop}", iterations_per_loop=loop) as model:
            for steps in trainings:
                model.train(model_cases.input_fn("two"), hooks=[Placed()], max_steps=steps)
                result = model.train_result
                say(case=f"loop {loop}", step=result.global_step, reason=result.reason)


class Placed(V1.train.SessionRunHook):
    """Says on which device each variable is."""

    def begin(self):
        say(case="placed", devices={v.op.name: v.device for v in V1.global_variables()})


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
