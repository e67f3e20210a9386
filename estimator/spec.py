import dataclasses
from typing import Any
class ModeKeys:
    TRAIN="train"; EVAL="eval"; PREDICT="infer"
@dataclasses.dataclass(frozen=True)
class EstimatorSpec:
    mode: str; predictions: Any=None; loss: Any=None; train_op: Any=None; eval_metric_ops: Any=None; export_outputs: Any=None
    training_chief_hooks: Any=None; training_hooks: Any=None; scaffold: Any=None; evaluation_hooks: Any=None; prediction_hooks: Any=None
@dataclasses.dataclass(frozen=True)
class TPUEstimatorSpec:
    mode: str; predictions: Any=None; loss: Any=None; train_op: Any=None; eval_metrics: Any=None; export_outputs: Any=None
    scaffold_fn: Any=None; host_call: Any=None; training_hooks: Any=None; evaluation_hooks: Any=None; prediction_hooks: Any=None
    def as_estimator_spec(self):
        em=None
        if self.eval_metrics:
            f,t=self.eval_metrics
            em=f(**t) if isinstance(t,dict) else f(*t)
        return EstimatorSpec(self.mode,self.predictions,self.loss,self.train_op,em,self.export_outputs,None,self.training_hooks,self.scaffold_fn() if self.scaffold_fn else None,self.evaluation_hooks,self.prediction_hooks)
