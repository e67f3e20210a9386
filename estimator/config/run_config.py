import dataclasses
from typing import Any


class InputPipelineConfig:
    PER_HOST_V2 = 3


@dataclasses.dataclass(frozen=True)
class TPUConfig:
    iterations_per_loop: int = 2


@dataclasses.dataclass(frozen=True)
class RunConfig:
    model_dir: Any = None
    tf_random_seed: Any = None
    save_summary_steps: Any = 100
    save_checkpoints_steps: Any = None
    save_checkpoints_secs: Any = None
    session_config: Any = None
    keep_checkpoint_max: Any = 5
    keep_checkpoint_every_n_hours: Any = 10000
    log_step_count_steps: Any = 100
    train_distribute: Any = None
    eval_distribute: Any = None
    checkpoint_save_graph_def: bool = True
    strategy: Any = None
    num_replicas: Any = None
    iterations_per_loop: int = 1
    nan_policy: str = "raise"
    resume_input: bool = True
    master: str = ""

    def replace(self, **k):
        return dataclasses.replace(self, **k)


class TPURunConfig(RunConfig):
    pass
