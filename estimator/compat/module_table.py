"""Which names each module of `tensorflow_estimator.python.estimator` has, and which ours are.

`NAMES` maps a module to names. One that is not followed by "=" is looked up in `SPACES`, in order;
"A=b.c" means `estimator.b.c`, and "A!" a class that only raises an error: A is not provided, but a
package that names it when it is imported can be imported. `GONE` says what replaces a module, or a
name of one ("module:name"), that is not provided.
"""

SPACES = (
    "estimator.compat.v1",
    "estimator.export",
    "estimator.inputs",
    "estimator.experimental",
    "estimator.tpu",
    "estimator.keras",
    "estimator.compat.old_names",
)

_HOOKS = (
    "CheckpointSaverHook CheckpointSaverListener FeedFnHook FinalOpsHook GlobalStepWaiterHook "
    "LoggingTensorHook NanLossDuringTrainingError NanTensorHook ProfilerHook SecondOrStepTimer "
    "StepCounterHook StopAtStepHook SummarySaverHook"
)
_RUN_HOOKS = "SessionRunArgs SessionRunContext SessionRunHook SessionRunValues"
_EXPORT = (
    "ServingInputReceiver SupervisedInputReceiver TensorServingInputReceiver "
    "build_parsing_serving_input_receiver_fn build_raw_serving_input_receiver_fn "
    "build_raw_supervised_input_receiver_fn"
)
_OUTPUTS = "ClassificationOutput EvalOutput ExportOutput PredictOutput RegressionOutput"
_EARLY = (
    "make_early_stopping_hook stop_if_higher_hook stop_if_lower_hook stop_if_no_decrease_hook "
    "stop_if_no_increase_hook"
)
_SPECS = "classifier_parse_example_spec regressor_parse_example_spec"
_EXPORTERS = "BestExporter Exporter FinalExporter LatestExporter"


def _both(*names: str) -> str:
    """Lists names in two forms: of `tf.compat.v1.estimator`, and with V2 of tf.estimator."""
    return " ".join(f"{name} {name}V2={name}" for name in names)


_BASELINE = _both("BaselineClassifier", "BaselineEstimator", "BaselineRegressor")
_DNN = _both("DNNClassifier", "DNNEstimator", "DNNRegressor")
_LINEAR = _both("LinearClassifier", "LinearEstimator", "LinearRegressor")
_COMBINED = _both(
    "DNNLinearCombinedClassifier", "DNNLinearCombinedEstimator", "DNNLinearCombinedRegressor"
)

NAMES = {
    "canned": "",
    "canned.baseline": _BASELINE,
    "canned.dnn": f"{_DNN} dnn_logit_fn_builder "
    "dnn_logit_fn_builder_v2=experimental.dnn_logit_fn_builder",
    "canned.dnn_linear_combined": _COMBINED,
    "canned.head": "LossSpec MetricKeys _CLASSIFY_SERVING_KEY _DEFAULT_SERVING_KEY _Head "
    "_PREDICT_SERVING_KEY _REGRESS_SERVING_KEY "
    "_binary_logistic_head_with_sigmoid_cross_entropy_loss "
    "_BinaryLogisticHeadWithSigmoidCrossEntropyLoss! _MultiClassHeadWithSoftmaxCrossEntropyLoss! "
    "_all_class_ids! _all_classes! _append_update_ops! _check_logits_final_dim! "
    "_classification_output! _create_eval_metrics_tuple! _summary_key! _validate_loss_fn_args! "
    "_multi_class_head_with_softmax_cross_entropy_loss _regression_head "
    "_regression_head_with_mean_squared_error_loss",
    "canned.kmeans": "KMeansClustering=experimental.KMeans",
    "canned.linear": f"{_LINEAR} LinearSDCA linear_logit_fn_builder "
    "linear_logit_fn_builder_v2=experimental.linear_logit_fn_builder",
    "canned.metric_keys": "MetricKeys",
    "canned.optimizers": "get_optimizer_instance get_optimizer_instance_v2",
    "canned.parsing_utils": f"{_SPECS} "
    "classifier_parse_example_spec_v2=classifier_parse_example_spec "
    "regressor_parse_example_spec_v2=regressor_parse_example_spec",
    "canned.prediction_keys": "PredictionKeys",
    "canned.rnn": "RNNClassifier RNNEstimator",
    "early_stopping": f"{_EARLY} read_eval_metrics",
    "estimator": "Estimator EstimatorV2=Estimator VocabInfo WarmStartSettings "
    "_assert_members_are_not_overridden _load_global_step_from_checkpoint_dir "
    "maybe_overwrite_model_dir_and_session_config",
    "estimator_lib": f"{_BASELINE} {_DNN} {_LINEAR} {_COMBINED} {_EXPORTERS} {_HOOKS} {_RUN_HOOKS} "
    f"{_SPECS} {_EARLY} Estimator EstimatorSpec EvalSpec ModeKeys RunConfig TrainSpec VocabInfo "
    "WarmStartSettings add_metrics export inputs model_to_estimator train_and_evaluate",
    "export": "",
    "export.export": f"{_EXPORT} UnsupervisedInputReceiver "
    "build_supervised_input_receiver_fn_from_input_fn",
    "export.export_lib": f"{_EXPORT} {_OUTPUTS}",
    "export.export_output": _OUTPUTS,
    "exporter": _EXPORTERS,
    "extenders": "add_metrics",
    "gc": "",
    "head": "",
    "head.base_head": "Head DEFAULT_SERVING_KEY LOSS_METRIC_KEY AVERAGE_LOSS_METRIC_KEY",
    "head.binary_class_head": "BinaryClassHead",
    "head.multi_class_head": "MultiClassHead",
    "head.multi_head": "MultiHead",
    "head.multi_label_head": "MultiLabelHead",
    "head.regression_head": "LogisticRegressionHead PoissonRegressionHead RegressionHead",
    "hooks": "",
    "hooks.basic_session_run_hooks": _HOOKS,
    "hooks.hooks": "InMemoryEvaluatorHook make_stop_at_checkpoint_step_hook",
    "hooks.session_run_hook": _RUN_HOOKS,
    "inputs": "",
    "inputs.inputs": "numpy_input_fn pandas_input_fn",
    "inputs.numpy_io": "numpy_input_fn",
    "inputs.pandas_io": "pandas_input_fn",
    "keras": "model_to_estimator",
    "keras_lib": "model_to_estimator",
    "mode_keys": "ModeKeys",
    "model_fn": "EstimatorSpec LOSS_METRIC_KEY AVERAGE_LOSS_METRIC_KEY ModeKeys call_logit_fn",
    "run_config": "RunConfig TaskType get_default_session_config",
    "tpu": "",
    "tpu.tpu_config": "InputPipelineConfig RunConfig=tpu.RunConfig TPUConfig",
    "tpu.tpu_context": "TPUContext=config.tpu_context.TPUContext",
    "tpu.tpu_estimator": "ExportSavedModelApiVersion InputPipelineConfig RunConfig=tpu.RunConfig "
    "TPUConfig TPUEstimator TPUEstimatorSpec",
    "tpu.util": "",
    "training": "EvalSpec TrainSpec train_and_evaluate",
    "util": "fn_args parse_input_fn_result",
}

GONE = {
    "canned.head": "Use the heads: estimator.BinaryClassHead, MultiClassHead, RegressionHead etc.",
    "canned.timeseries": "Use a `model_fn`.",
    "gc": "BestExporter and LatestExporter delete old exports: see their `exports_to_keep`.",
    "head.sequential_head": "Write a subclass of estimator.Head.",
    "inputs.queues": "Use tf.data, or estimator.inputs.",
    "tools": "estimator restores checkpoints of tf.estimator as they are.",
    "tpu.error_handling": "It is not needed: training raises the first error of its session.",
    "tpu.util": "It is not needed: estimator.tpu.TPUConfig checks its own arguments.",
    "training:_TrainingExecutor": "Use estimator.train_and_evaluate.",
    "util:MultiHostDatasetInitializerHook": "It is not needed: datasets are initialized.",
}
