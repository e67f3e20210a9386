"""Hooks that read the loss of each call, as programs and libraries do."""

from tests.contract.names import v1


class LossOfCall(v1.train.SessionRunHook):
    """Asks for the loss as the last of the call's own fetches."""

    def __init__(self):
        self.losses = []

    def before_run(self, run_context):
        return v1.train.SessionRunArgs(run_context.original_args.fetches[-1])

    def after_run(self, run_context, run_values):
        self.losses.append(float(run_values.results))


class Merged(v1.train.SessionRunHook):
    """Merges the summaries, as hooks do that send them elsewhere."""

    def __init__(self):
        self.losses = []

    def begin(self):
        self.summary = v1.summary.merge_all()

    def before_run(self, run_context):
        return v1.train.SessionRunArgs(self.summary)

    def after_run(self, run_context, run_values):
        values = v1.Summary.FromString(run_values.results).value
        self.losses += [value.simple_value for value in values if value.tag == "loss"]
