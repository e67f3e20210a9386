"""By entry of `_tf`, the names without promise that it relies on."""

_HOOKS = "tensorflow.compat.v1.train"
_LAUNCHER = "tensorflow.python.distribute.cross_device_utils:CollectiveReplicaLauncher"
_COLUMNS = "tensorflow.python.feature_column.feature_column_v2"
_OPS = "tensorflow.python.ops"

INTERNALS = {
    # callers.py: the folders of TensorFlow and Keras, and the stacks that ops keep.
    "is_made_by_keras": ("tensorflow:Operation.traceback",),
    "is_called_by_keras": ("keras:src", "tf_keras:src"),
    "is_made_by_v1_layer": (
        "tensorflow:Operation.traceback",
        "?tf_keras.src.legacy_tf_layers.base:Layer",
    ),
    "is_left_to_step": (
        "tensorflow:Operation.traceback",
        "tensorflow.python.distribute.mirrored_run:_call_for_each_replica",
        "tensorflow.python.training.optimizer:Optimizer._distributed_apply",
        "?tf_keras.src.optimizers.legacy.optimizer_v2:OptimizerV2",
    ),
    "line_of": ("tensorflow:Operation.traceback",),
    # checkpoint.py
    "slice_of": ("tensorflow:Variable._get_save_slice_info",),
    "object_graph_keys": (
        "tensorflow.core.protobuf.trackable_object_graph_pb2:TrackableObjectGraph",
    ),
    "ConstantSaveable": (
        "tensorflow.python.training.saving.saveable_object:SaveableObject",
        "tensorflow.python.training.saving.saveable_object:SaveSpec",
    ),
    "object_saveables": (
        "tensorflow.python.checkpoint.graph_view:ObjectGraphView.frozen_saveable_objects",
    ),
    "checkpoint_initializers_outside_loops": (
        "tensorflow.python.training.checkpoint_utils:_set_checkpoint_initializer",
        f"{_OPS}.resource_variable_ops:BaseResourceVariable#_initializer_op",
    ),
    "initializer_before_checkpoint": (),
    "savers_apart": (
        f"{_HOOKS}:Saver.build",
        f"{_HOOKS}:Saver#_var_list",
        "tensorflow.python.distribute.values:DistributedVariable._gather_saveables_for_checkpoint",
    ),
    "meta_graphs_refused": (
        "tensorflow.python.training.saver:_import_meta_graph_with_return_elements",
    ),
    # data.py
    "ops_of_datasets_in": ("tensorflow:Graph.unique_name", "tensorflow.python.data:Dataset"),
    "components_replaced": (
        "tensorflow.python.data.util.nest:map_structure",
        "tensorflow:data.Dataset.from_tensor_slices",
        "tensorflow:data.Dataset.from_tensors",
    ),
    "map_in_line": ("tensorflow.python.data.ops.map_op:_MapDataset",),
    # distribute.py
    "copies": ("tensorflow.python.distribute.ps_values:AggregatingVariable#_v",),
    "allows_partitions": ("tensorflow:distribute.StrategyExtended._allow_variable_partition",),
    "variables_by_name": (),
    "variables_by_handle": ("tensorflow.python.framework.func_graph:FuncGraph#outer_graph",),
    "replica_reaches_outer_graphs": (
        "tensorflow:Graph._distribution_strategy_stack",
        "tensorflow:Graph._variable_creator_stack",
    ),
    "is_for_workers": (
        "tensorflow.python.distribute.collective_all_reduce_strategy:CollectiveAllReduceStrategy",
        "tensorflow.python.distribute.collective_all_reduce_strategy:CollectiveAllReduceStrategyV1",
    ),
    "is_multi_worker": (
        "tensorflow.python.distribute.collective_all_reduce_strategy:CollectiveAllReduceStrategy",
    ),
    "make_multi_worker_mirrored": (
        "tensorflow.python.distribute.collective_all_reduce_strategy:CollectiveAllReduceExtended"
        "._initialize_local_devices",
        "tensorflow:distribute.MultiWorkerMirroredStrategy._collective_key_base",
    ),
    "number_collectives": (
        "tensorflow.python.distribute.cross_device_utils:CollectiveKeys.get_instance_key",
        "tensorflow.python.distribute.cross_device_utils:INSTANCE_KEY_START_NUMBER",
    ),
    "initializers_without_broadcast": (
        "tensorflow.python.distribute.collective_all_reduce_strategy:CollectiveAllReduceExtended"
        "._create_variable",
        "tensorflow.python.distribute.collective_all_reduce_strategy:CollectiveAllReduceExtended"
        "._get_variable_creator_initial_value",
    ),
    "make_parameter_server": (
        "tensorflow.python.distribute.parameter_server_strategy:ParameterServerStrategyExtended"
        "#_compute_devices",
        "tensorflow.python.distribute.parameter_server_strategy:ParameterServerStrategyExtended"
        "#_variable_device",
    ),
    "has_started_server": (
        "tensorflow.python.distribute.collective_all_reduce_strategy:CollectiveAllReduceExtended"
        "#_std_server_started",
    ),
    "PiggybackSlot": (),
    "piggyback_slots": (
        "tensorflow.python.distribute.cross_device_utils:CollectiveReplicaLauncher"
        ".batch_all_reduce",
        "tensorflow:Graph._get_control_flow_context",
    ),
    # collectives.py
    "collectives_in_sessions": (
        "tensorflow.python.distribute.cross_device_ops:CollectiveAllReduce"
        "._all_reduce_per_replica_values",
        "tensorflow.python.distribute.cross_device_ops:CollectiveAllReduce._batch_all_gather",
        "tensorflow.python.distribute.values:Mirrored",
        f"{_LAUNCHER}.all_reduce_indexed_slices",
        f"{_LAUNCHER}._all_gather",
        f"{_LAUNCHER}.all_gather",
        "tensorflow.python.distribute.cross_device_utils:is_indexed_slices",
        f"{_LAUNCHER}._use_unique_instance_key",
        "tensorflow.python.distribute.cross_device_utils:CollectiveKeys.get_instance_key",
        "tensorflow.python.ops.collective_ops:all_gather_v2",
    ),
    # equality.py
    "keras_compares_values": ("tensorflow:Tensor.__eq__", "tensorflow:Tensor.__ne__"),
    "variables_as_in_v1": (
        f"{_OPS}.resource_variable_ops:BaseResourceVariable.__bool__",
        "tensorflow:Variable.initialized_value",
    ),
    "optimizers_as_in_v1": (
        "tensorflow.python.training.optimizer:_DenseResourceVariableProcessor.update_op",
        "tensorflow.python.training.optimizer:_DenseResourceVariableProcessor.target",
        "tensorflow.python.training.optimizer:_RefVariableProcessor.update_op",
        f"{_HOOKS}:Optimizer._apply_dense",
        f"{_HOOKS}:Optimizer._apply_sparse",
        f"{_HOOKS}:Optimizer._apply_sparse_duplicate_indices",
        f"{_HOOKS}:Optimizer._resource_apply_dense",
        f"{_HOOKS}:Optimizer._resource_apply_sparse",
        f"{_HOOKS}:Optimizer._resource_apply_sparse_duplicate_indices",
    ),
    "non_slots_in_loops": (
        f"{_HOOKS}:Optimizer._get_non_slot_variable",
        f"{_HOOKS}:Optimizer._create_non_slot_variable",
        "tensorflow.python.framework.func_graph:FuncGraph.outer_graph",
    ),
    "gradients_not_gated": (
        f"{_OPS}.resource_variable_ops:is_resource_variable",
        f"{_HOOKS}:Optimizer.GATE_OP",
        f"{_HOOKS}:Optimizer.GATE_NONE",
    ),
    # replica_updates.py
    "keeps_own_copies": ("tensorflow.python.distribute.values:_on_write_update_replica",),
    # gradients.py
    "gradient_reduction": (),
    "mean_gradients": (
        f"{_HOOKS}:Optimizer.apply_gradients",
        f"{_HOOKS}:Optimizer._distributed_apply",
        "tensorflow.python.distribute.mirrored_strategy:MirroredExtended._use_merge_call",
        "tensorflow.python.distribute.values:apply_aggregation_replica_context",
        "tensorflow.python.distribute.values:_on_write_update_replica",
        "tensorflow.python.distribute.mirrored_run:_MirroredReplicaContext._merge_call",
        "tensorflow.python.framework.ops:_op_to_colocate_with",
        "tensorflow.python.distribute.ps_values:AggregatingVariable._assign_func",
        "tensorflow.python.distribute.parameter_server_strategy:ParameterServerStrategyExtended._use_merge_call",
        "tensorflow.python.distribute.parameter_server_strategy:ParameterServerStrategyExtended"
        "._replica_ctx_update",
        "tensorflow.python.distribute.parameter_server_strategy:ParameterServerStrategyExtended._update",
        "keras.src.backend.tensorflow.optimizer:TFOptimizer._all_reduce_sum_gradients",
        "keras.src.optimizers.base_optimizer:BaseOptimizer.apply",
        "tf_keras.src.optimizers.utils:all_reduce_sum_gradients",
        "tf_keras.src.optimizers.optimizer:_BaseOptimizer.apply_gradients",
        "tf_keras.src.optimizers.legacy.optimizer_v2:OptimizerV2.apply_gradients",
        "tf_keras.src.optimizers.legacy.optimizer_v2:OptimizerV2._aggregate_gradients",
    ),
    "ColumnInput": (
        f"{_COLUMNS}:FeatureTransformationCache.get",
        f"{_COLUMNS}:_StateManagerImpl.create_variable",
        f"{_COLUMNS}:_StateManagerImpl.get_variable",
        f"{_COLUMNS}:_StateManagerImpl#_cols_to_vars_map",
        f"{_COLUMNS}:_create_categorical_column_weighted_sum",
        f"{_COLUMNS}:HashedCategoricalColumn",
    ),
    "SharedEmbeddingColumn": (f"{_COLUMNS}:EmbeddingColumn",),
    "as_current_column": (f"{_COLUMNS}:fc_old._SharedEmbeddingColumn",),
    "is_column": (f"{_COLUMNS}:fc_types.FeatureColumn",),
    "is_dense": (f"{_COLUMNS}:DenseColumn", f"{_COLUMNS}:SequenceDenseColumn"),
    "is_categorical": (f"{_COLUMNS}:CategoricalColumn",),
    "is_embedding": (f"{_COLUMNS}:EmbeddingColumn",),
    "is_sequence": (
        f"{_COLUMNS}:SequenceDenseColumn",
        f"{_COLUMNS}:SequenceCategoricalColumn",
    ),
    "identity_column": (
        f"{_COLUMNS}:IdentityCategoricalColumn",
        f"{_COLUMNS}:IndicatorColumn",
    ),
    "scope_name": (),
    "scaled": (),
    # graph.py
    "while_loop": (f"{_OPS}.while_v2:while_loop",),
    "cond": (f"{_OPS}.cond_v2:cond_v2",),
    "initialized_value": (f"{_OPS}.cond_v2:cond_v2",),
    "copy_op": (
        "tensorflow:Graph._create_op_internal",
        "tensorflow:Operation._add_control_inputs",
    ),
    "add_control_inputs": (
        "tensorflow:Operation._add_control_inputs",
        f"{_OPS}.control_flow_ops:WhileContext.loop_enters",
    ),
    "note_devices": ("tensorflow:Graph._device_function_stack",),
    "set_device": ("tensorflow:Operation._set_device",),
    "set_input": ("tensorflow:Operation._update_input",),
    "name_resources": (
        "tensorflow:Operation._set_attr",
        "tensorflow.core.framework.attr_value_pb2:AttrValue",
    ),
    "is_ref": ("tensorflow:DType._is_ref_dtype",),
    "is_loop_body": ("tensorflow:Graph.building_function",),
    "outer_graphs": ("tensorflow.python.framework.func_graph:FuncGraph#outer_graph",),
    "can_be_read_in": (
        "tensorflow:Graph._get_control_flow_context",
        "tensorflow:Operation._get_control_flow_context",
        f"{_OPS}.control_flow_util:GetContainingWhileContext",
    ),
    "capture_source": (
        "tensorflow.python.framework.func_graph:FuncGraph.function_captures",
        "tensorflow.python.framework.func_graph:FuncGraph.captures",
    ),
    "foreign_captures": (
        "tensorflow.python.framework.func_graph:FuncGraph.function_captures",
        "tensorflow.python.framework.func_graph:FuncGraph.captures",
    ),
    "names_in_use": ("tensorflow:Graph#_names_in_use",),
    "take_names": ("tensorflow:Graph#_names_in_use",),
    "names_shared": (
        "tensorflow:Graph#_names_in_use",
        "tensorflow.python.framework.func_graph:FuncGraph._capture_helper",
    ),
    "noting_waits": ("tensorflow.python.framework.func_graph:FuncGraph.control_dependencies",),
    "forget_waits": ("tensorflow.python.framework.func_graph:FuncGraph.function_captures",),
    "hashable_tensors": ("tensorflow:Tensor.__hash__",),
    # hooks.py
    "logging_hook_tensors": (f"{_HOOKS}:LoggingTensorHook#_tensors",),
    "replace_logging_hook_tensors": (
        f"{_HOOKS}:LoggingTensorHook#_tensors",
        f"{_HOOKS}:LoggingTensorHook#_tag_order",
    ),
    "tell_steps_so_far": (f"{_HOOKS}:LoggingTensorHook#_iter_count",),
    "summary_tensors": (f"{_HOOKS}:SummarySaverHook._get_summary_op",),
    "set_summary_tensors": (f"{_HOOKS}:SummarySaverHook#_summary_op",),
    "final_ops": (f"{_HOOKS}:FinalOpsHook#_final_ops",),
    "last_step_of": (f"{_HOOKS}:StopAtStepHook#_last_step",),
    "planned_stop": (f"{_HOOKS}:StopAtStepHook#_last_step", f"{_HOOKS}:StopAtStepHook#_num_steps"),
    "stops_at_last_step": (f"{_HOOKS}:StopAtStepHook.after_run",),
    "set_steps_per_run": (f"{_HOOKS}:StepCounterHook._set_steps_per_run",),
    "forget_request": (f"{_HOOKS}:SummarySaverHook#_request_summary",),
    "step_timer": (
        f"{_HOOKS}:LoggingTensorHook#_timer",
        f"{_HOOKS}:SecondOrStepTimer#_every_steps",
        f"{_HOOKS}:SummarySaverHook#_next_step",
        f"{_HOOKS}:ProfilerHook#_next_step",
    ),
    "tell_next_step": (
        f"{_HOOKS}:SummarySaverHook#_next_step",
        f"{_HOOKS}:ProfilerHook#_next_step",
    ),
    "listeners_of": (f"{_HOOKS}:CheckpointSaverHook#_listeners",),
    "listening": (f"{_HOOKS}:CheckpointSaverHook#_listeners",),
    # keras.py
    "tf_keras_constants_in_graph": (
        "tf_keras.src.engine.base_layer_utils:_UNSAFE_GRAPH_OP_LAYER_CREATION",
    ),
    "tf_keras_updates_of_trained": ("tf_keras.src.engine.base_layer_v1:Layer.add_update",),
    "tf_keras_classes_kept": ("tf_keras.src.utils.version_utils:swap_class",),
    "keras_policy": (
        "tf_keras.src.engine.base_layer_utils:v2_dtype_behavior_enabled",
        "keras.mixed_precision:set_global_policy",
    ),
    "compile_arguments": ("keras:Model.compile",),
    "names_without_weight_decay": (
        "keras.src.optimizers.base_optimizer:BaseOptimizer.exclude_from_weight_decay",
    ),
    "keras_layers": ("keras:Model._flatten_layers",),
    "keras_functions_trusted": ("keras.src.saving.serialization_lib:SafeModeScope",),
    "copied_lookup": (
        "keras:layers.IntegerLookup.get_config",
        "keras:layers.TextVectorization#_lookup_layer",
    ),
    "copy_trainable": ("keras:Model._flatten_layers",),
    "clones_uncompiled": ("keras:models.clone_model",),
    "compiled_metrics": (
        "keras.src.trainers.compile_utils:CompileMetrics.metrics",
        "keras.src.trainers.compile_utils:CompileMetrics.result",
    ),
    "metric_variables": ("keras.src.backend:Variable.value",),
    "variable_of": ("keras.src.backend:Variable.value",),
    "keras_additions_in_one_op": (
        "keras.src.backend:Variable.assign_add",
        "keras.src.backend:Variable.assign_sub",
        "keras.src.backend.common.stateless_scope:in_stateless_scope",
        "keras.src.backend.tensorflow.optimizer:TFOptimizer.assign_add",
        "keras.src.backend.tensorflow.optimizer:TFOptimizer.assign_sub",
    ),
    "keras_constraints_shared": (
        "keras.src.backend:Variable.constraint",
        "keras.src.backend:Variable._deferred_initialize",
        "tensorflow.python.ops.resource_variable_ops:BaseResourceVariable#_constraint",
    ),
    "keras_variables_in_v1": (
        "tensorflow:compat.v1.train.Optimizer.compute_gradients",
        "tensorflow:compat.v1.train.Optimizer.apply_gradients",
        "tensorflow:compat.v1.train.Optimizer.get_slot",
        "tensorflow:train.ExponentialMovingAverage.average_name",
        "tensorflow:compat.v1.train.Saver",
        "tensorflow.python.training.checkpoint_utils:_init_from_checkpoint",
    ),
    # keras_losses.py
    "unscaled_keras_losses": (
        "keras.src.losses.loss:scale_loss_for_distribution",
        "keras.src.losses.loss:unscale_loss_for_distribution",
        "tf_keras.src.utils.losses_utils:scale_loss_for_distribution",
    ),
    "keras_sums_over_replicas": ("keras.src.losses.loss:Loss.__call__",),
    "tf_keras_means_over_replicas": (
        "tf_keras.src.utils.losses_utils:scale_loss_for_distribution",
    ),
    "keras_loss": ("keras:Model._compute_loss",),
    "tf_keras_containers": (
        "tf_keras.src.engine.compile_utils:LossesContainer",
        "tf_keras.src.engine.compile_utils:MetricsContainer._get_metric_object",
        "tf_keras.src.engine.compile_utils:MetricsContainer._set_metric_names",
        "tensorflow:__internal__.tf2.enabled",
    ),
    "forget_tf_keras_losses": ("tf_keras.src.engine.base_layer_v1:Layer.add_loss",),
    "last_loss_is_sum": ("tensorflow:Graph#_last_loss_reduction",),
    "keras_loss_reductions_noted": ("keras.src.losses.loss:reduce_weighted_values",),
    # keras_names.py
    "fresh_keras_names": (
        "keras.src.backend.common.global_state:get_global_attribute",
        "keras.src.backend.common.global_state:set_global_attribute",
    ),
    "keras_names_as_in_tf_keras": (
        "keras.src.backend:name_scope.__enter__",
        "keras.src.backend:Variable._initialize",
        "keras.src.backend.common.name_scope:current_path",
        "keras.src.models.sequential:Sequential",
        "keras.src.layers.convolutional.base_depthwise_conv:BaseDepthwiseConv.add_weight",
    ),
    "tf_keras_names_by_thread": ("tf_keras.src.backend:get_default_graph_uid_map",),
    # optimizers.py
    "keras_optimizers_in_graphs": (
        "keras.src.optimizers.base_optimizer:BaseOptimizer.add_variable",
        "keras.src.optimizers.base_optimizer:BaseOptimizer.add_variable_from_reference",
        "keras.src.optimizers.base_optimizer:BaseOptimizer.scale_loss",
        "keras.src.optimizers.adafactor:backend",
        "?keras.src.optimizers.muon:Muon.build",
        "?keras.src.optimizers.muon:Muon._should_use_adamw",
        "?keras.src.optimizers.multi_optimizer:OptimizerMap.__call__",
        "keras.src.optimizers.loss_scale_optimizer:LossScaleOptimizer.scale_loss",
        "keras.src.optimizers.loss_scale_optimizer:LossScaleOptimizer.build",
        "?keras.src.optimizers.schedule_free_adamw:ScheduleFreeAdamW.build",
        "tf_keras.src.optimizers.nadam:Nadam.build",
        "tf_keras.src.optimizers.nadam:Nadam#_u_product_counter",
    ),
    "scaled_loss": ("keras.src.optimizers.base_optimizer:BaseOptimizer.scale_loss",),
    "loss_scale": ("keras.src.optimizers.base_optimizer:BaseOptimizer.scale_loss",),
    "legacy_name": (
        "tf_keras.src.optimizers.legacy.optimizer_v2:OptimizerV2#_hyper",
        "tf_keras.src.optimizers.legacy.optimizer_v2:OptimizerV2#_name",
    ),
    "copied_legacy_optimizer": (
        "tf_keras.src.optimizers.legacy.optimizer_v2:OptimizerV2#_hyper",
        "tf_keras.src.optimizers.legacy.optimizer_v2:OptimizerV2#_hypers_created",
        "tf_keras.src.optimizers.legacy.optimizer_v2:OptimizerV2#_iterations",
    ),
    # replica_losses.py
    "keep_losses_apart": (
        "tensorflow:Graph#_collections",
        "tensorflow:distribute.ReplicaContext#_local_replica_id",
    ),
    "layer_regularizers_by_replica": (
        "tensorflow.python.keras.engine.base_layer_v1:Layer._handle_weight_regularization",
        "tf_keras.src.engine.base_layer_v1:Layer._handle_weight_regularization",
        "tensorflow.python.ops.variables:PartitionedVariable",
    ),
    # random.py
    "swap_seed_counter": (
        "tensorflow.python.framework.random_seed:_graph_to_seed_dict",
        f"{_OPS}.gen_random_ops:random_uniform",
    ),
    "random_ops_replaced": (f"{_OPS}.gen_random_ops:random_uniform",),
    "keras_seeds_replaced": (f"{_OPS}.random_ops_util:get_key_counter_alg",),
    "loop_counters": (
        f"{_OPS}.control_flow_v2_func_graphs:WhileBodyFuncGraph",
        f"{_OPS}.control_flow_v2_func_graphs:WhileCondFuncGraph",
        f"{_OPS}.control_flow_v2_func_graphs:CondBranchFuncGraph",
        f"{_OPS}.parallel_for:__path__",
        "tensorflow:Graph._get_control_flow_context",
    ),
    # session.py
    "make_callable": (
        "tensorflow.core.protobuf.config_pb2:CallableOptions",
        "tensorflow.compat.v1:Session._make_callable_from_options",
        "tensorflow.compat.v1:Session._do_call",
    ),
    "settings_of_tf_config": ("tensorflow.python.eager.context:context",),
    "FunctionSession": ("tensorflow.python.client.session:SessionInterface",),
    "MappedSession": (
        "tensorflow.python.ops.resource_variable_ops:BaseResourceVariable._as_graph_element",
    ),
    "InterruptibleSession": (
        "tensorflow.compat.v1:Session._do_call",
        "tensorflow.compat.v1:Session#_closed",
    ),
    "map_fetches": (),
    "open_session": (),
    "set_scaffold_parts": (f"{_HOOKS}:Scaffold#_init_op",),
    "stopped_at_exit": (),
    # summary.py
    "file_writer": (
        "tensorflow.compat.v1.summary:FileWriterCache._lock",
        "tensorflow.compat.v1.summary:FileWriterCache._cache",
    ),
    "unique_event_files": ("tensorflow:compat.v1.summary.FileWriterCache.get",),
    "close_file_writer": (
        "tensorflow.compat.v1.summary:FileWriterCache._lock",
        "tensorflow.compat.v1.summary:FileWriterCache._cache",
    ),
    "is_file_writer_lost": (
        "tensorflow.compat.v1.summary:FileWriterCache._cache",
        "tensorflow.python.summary.writer.event_file_writer:EventFileWriter#_ev_writer",
    ),
    "summary_ops_replaced": tuple(
        f"{_OPS}.gen_logging_ops:{name}"
        for name in (
            *("audio_summary_v2", "histogram_summary", "image_summary", "merge_summary"),
            *("scalar_summary", "tensor_summary_v2"),
        )
    ),
    "build_flush_of_writers": (f"{_OPS}.summary_ops_v2:_SUMMARY_WRITER_INIT_COLLECTION_NAME",),
    "writer_initializers": (f"{_OPS}.summary_ops_v2:_SUMMARY_WRITER_INIT_COLLECTION_NAME",),
    # sync_replicas.py
    "sync_replicas_refused": (f"{_HOOKS}:SyncReplicasOptimizer.apply_gradients",),
    "sync_replicas_in_line": tuple(
        f"{_HOOKS}:SyncReplicasOptimizer#{name}"
        for name in (
            *("_opt", "_replicas_to_aggregate", "_variable_averages", "_variables_to_average"),
            *("local_step_init_op", "chief_init_op", "ready_for_local_init_op", "_global_step"),
            *("_sync_token_queue", "_gradients_applied"),
        )
    ),
    # tpu.py
    "TPU_PROGRAM": ("tensorflow.python.tpu.tpu_replication:TPUReplicateContext",),
    "is_in_tpu_program": ("tensorflow.python.tpu.tpu_replication:TPUReplicateContext",),
    "free_tpu_handles": ("tensorflow:Operation._remove_all_control_inputs",),
    "per_replica": (
        "tensorflow.python.distribute.tpu_strategy:TPUExtended"
        "._experimental_distribute_values_from_function",
    ),
    "tpu_resolver": (
        "tensorflow.python.distribute.tpu_strategy:TPUExtended#_tpu_cluster_resolver",
    ),
    "is_initialized_tpu": ("tensorflow.python.tpu.tpu_strategy_util:get_initialized_tpu_systems",),
    "note_initialized_tpu": (
        "tensorflow.python.tpu.tpu_strategy_util:_INITIALIZED_TPU_SYSTEMS",
        "tensorflow:distribute.cluster_resolver.TPUClusterResolver.set_tpu_topology",
    ),
    "tpu_name": ("tensorflow:distribute.cluster_resolver.TPUClusterResolver#_tpu",),
    "compilable_ops": ("tensorflow.python.framework.kernels:get_all_registered_kernels",),
    # v1_branches.py
    "after_v1_branches": (
        "tensorflow:Graph._get_control_flow_context",
        "tensorflow:Graph._set_control_flow_context",
        "tensorflow:Operation._get_control_flow_context",
        "tensorflow.python.ops.control_flow_ops:WhileContext.loop_enters",
        "tensorflow.python.ops.control_flow_ops:WhileContext.loop_exits",
    ),
    "is_in_v1_cond": (
        "tensorflow:Operation._get_control_flow_context",
        "tensorflow.python.ops.control_flow_ops:CondContext.IsCondContext",
    ),
    "is_in_v1_loop": (
        "tensorflow:Operation._get_control_flow_context",
        "tensorflow.python.ops.control_flow_ops:WhileContext.IsWhileContext",
    ),
    # variable_use.py
    "written_resources": (
        "tensorflow.python.framework.auto_control_deps_utils:get_read_write_resource_inputs",
        "tensorflow.python.framework.auto_control_deps_utils:RESOURCE_READ_OPS",
        "tensorflow.python.framework.op_def_registry:get",
    ),
    "written_handles": (
        "tensorflow.python.framework.auto_control_deps_utils:get_read_write_resource_inputs",
    ),
    "variable_source": ("tensorflow.python.framework.func_graph:FuncGraph.captures",),
    "is_stateful": ("tensorflow.python.framework.op_def_registry:get",),
    "ops_inside": (
        "tensorflow:Graph._get_function",
        "tensorflow.python.eager.polymorphic_function.atomic_function:AtomicFunction.graph",
    ),
    "runs_a_function": ("tensorflow.python.framework.op_def_registry:get",),
    "ends_of": ("tensorflow:Graph._set_control_flow_context",),
    "branches_noted": (
        "tensorflow.python.framework.func_graph:func_graph_from_py_func",
        "tensorflow.python.framework.func_graph:FuncGraph#control_outputs",
        f"{_OPS}.control_flow_v2_func_graphs:CondBranchFuncGraph",
    ),
    "keras_control_flow_v2": (f"{_OPS}.control_flow_util:EnableControlFlowV2",),
    "name_scopes_in_branches": (
        "tensorflow.python.framework.func_graph:func_graph_from_py_func",
        "tensorflow.python.framework.func_graph:override_func_graph_name_scope",
        f"{_OPS}.control_flow_util:ENABLE_CONTROL_FLOW_V2",
        f"{_OPS}.control_flow_v2_func_graphs:ControlFlowFuncGraph",
    ),
}

# Of modules whose functions are no entries, because only `estimator.install` uses them.
OF_INSTALL = (
    "tensorflow.python.util.lazy_loader:LazyLoader",
    "tensorflow.python.framework.smart_cond:smart_cond",
)
