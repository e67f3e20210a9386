"""Is killed while its exporter runs: `killed_evaluator.py (evaluator|local) MODEL_DIR STEP...`.

Evaluates what is there, or trains, too, and prints the step of each checkpoint that it evaluates,
and of each that it exports.
"""

import os
import signal
import sys

import estimator as est
from estimator.roles.train_and_evaluate import run_evaluator
from tests.toy import Model, numbers


class Evaluated(est.SessionRunHook):
    """Prints the step of the checkpoint."""

    def after_create_session(self, session, coord):
        print("evaluates", session.run("global_step:0"), flush=True)


class KillingExporter(est.Exporter):
    """Kills the process instead of exporting one step."""

    name = "killing"

    def export(self, estimator, export_path, checkpoint_path, eval_result, is_the_final_export):
        step = int(eval_result["global_step"])
        if step in KILLED_AT:
            os.kill(os.getpid(), signal.SIGKILL)
        print("exports", step, flush=True)


KILLED_AT = [int(step) for step in sys.argv[3:]]
config = est.RunConfig(sys.argv[2], save_checkpoints_steps=5, log_step_count_steps=None)
spec = est.EvalSpec(
    numbers(3),
    hooks=[Evaluated()],
    exporters=KillingExporter(),
    start_delay_secs=0,
    throttle_secs=0,
)
train = est.TrainSpec(numbers(), max_steps=40)
with est.Estimator(Model(), config=config) as model:
    if sys.argv[1] == "local":
        est.train_and_evaluate(model, train, spec)
    else:
        run_evaluator(model, train, [spec])
