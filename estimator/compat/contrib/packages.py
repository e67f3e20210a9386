"""The packages of `tf.contrib` that are provided, and what replaces the others."""

# The packages, each with the modules that were inside it and have all its names, too.
PACKAGES = {
    "cluster_resolver": "training tpu_cluster_resolver",
    "crf": "ops crf",
    "data": "ops batching interleave_ops shuffle_ops readers grouping prefetching_ops",
    "distribute": "mirrored_strategy parameter_server_strategy one_device_strategy",
    "eager": "tfe",
    "estimator": "estimator extenders head multi_head hooks early_stopping",
    "framework": "ops variables framework checkpoint_utils checkpoint_ops",
    "layers": "layers ops feature_column feature_column_ops initializers optimizers "
    "regularizers normalization encoders utils embedding_ops",
    "learn": "learn estimators model_fn run_config learn_runner experiment utils",
    "lookup": "ops lookup_ops",
    "metrics": "ops metric_ops",
    "opt": "training weight_decay_optimizers lazy_adam_optimizer moving_average_optimizer",
    "predictor": "predictor_factories predictor saved_model_predictor",
    "rnn": "ops rnn rnn_cell core_rnn_cell core_rnn_cell_impl",
    "summary": "summary summary_ops",
    "tpu": "tpu ops tpu_ops tpu_config tpu_context tpu_estimator tpu_function tpu_optimizer "
    "bfloat16",
    "training": "training hparam evaluation",
    "util": "",
}

# Where the names of each package are: in a file beside this one, another module of the library, or
# TensorFlow; "old=new" where the name has changed.
NAMES = {
    "cluster_resolver": {
        "tf.distribute.cluster_resolver": "ClusterResolver GCEClusterResolver "
        "KubernetesClusterResolver SimpleClusterResolver SlurmClusterResolver "
        "TFConfigClusterResolver UnionClusterResolver=UnionResolver",
        "contrib_cluster_resolver": "TPUClusterResolver",
    },
    "crf": {
        "contrib_crf": "crf_binary_score crf_decode crf_log_likelihood crf_log_norm "
        "crf_sequence_score crf_unary_score viterbi_decode",
    },
    "data": {
        "contrib_data": "batch_and_drop_remainder padded_batch_and_drop_remainder",
        "tf.compat.v1.data": "Dataset FixedLengthRecordDataset Iterator TFRecordDataset "
        "TextLineDataset",
        "tf.compat.v1.data.experimental": "AUTOTUNE CheckpointInputPipelineHook Counter CsvDataset "
        "Optional RandomDataset SqlDataset bucket_by_sequence_length choose_from_datasets "
        "copy_to_device dense_to_sparse_batch enumerate_dataset get_single_element "
        "group_by_reducer group_by_window ignore_errors make_batched_features_dataset "
        "make_csv_dataset make_saveable_from_iterator map_and_batch parallel_interleave "
        "parse_example_dataset prefetch_to_device sample_from_datasets scan shuffle_and_repeat "
        "unbatch unique",
    },
    "distribute": {
        "contrib_distribute": "MirroredStrategy",
        "tf.distribute": "CollectiveAllReduceStrategy=MultiWorkerMirroredStrategy",
        "tf.compat.v1.distribute": "OneDeviceStrategy",
        "tf.compat.v1.distribute.experimental": "ParameterServerStrategy TPUStrategy",
    },
    "eager": {"tf": "defun=function"},
    "estimator": {
        "contrib_estimator": "binary_classification_head clip_gradients_by_norm "
        "forward_features logistic_regression_head multi_class_head multi_head multi_label_head "
        "poisson_regression_head regression_head",
        "estimator.compat.old_names": "read_eval_metrics",
        "estimator.compat.v1": "BaselineEstimator DNNEstimator DNNLinearCombinedEstimator "
        "LinearEstimator add_metrics",
        "estimator.experimental": "InMemoryEvaluatorHook RNNClassifier RNNEstimator call_logit_fn "
        "dnn_logit_fn_builder linear_logit_fn_builder make_early_stopping_hook "
        "make_stop_at_checkpoint_step_hook stop_if_higher_hook stop_if_lower_hook "
        "stop_if_no_decrease_hook stop_if_no_increase_hook",
    },
    "framework": {
        "contrib_framework": "assign_from_checkpoint_fn filter_variables get_model_variables "
        "get_trainable_variables get_variables get_variables_to_restore nest",
        "tensorflow.python.framework.smart_cond": "smart_case smart_cond smart_constant_value",
        "tf": "argsort is_tensor sort",
        "tf.compat.v1": "assert_scalar",
        "tf.compat.v1.train": "assert_global_step create_global_step get_global_step "
        "get_or_create_global_step init_from_checkpoint",
        "tf.train": "list_variables load_checkpoint load_variable",
    },
    "layers": {
        "contrib_columns": "crossed_column embedding_column input_from_feature_columns "
        "one_hot_column real_valued_column sparse_column_with_hash_bucket "
        "sparse_column_with_integerized_feature sparse_column_with_keys "
        "sparse_column_with_vocabulary_file weighted_sparse_column",
        "contrib_layers": "avg_pool2d conv2d=convolution2d convolution2d dropout embed_sequence "
        "flatten fully_connected linear max_pool2d one_hot_encoding relu=fully_connected stack",
        "contrib_normalization": "batch_norm layer_norm",
        "contrib_optimize_loss": "OPTIMIZER_CLS_NAMES OPTIMIZER_SUMMARIES optimize_loss",
        "contrib_regularizers": "apply_regularization l1_l2_regularizer l1_regularizer "
        "l2_regularizer sum_regularizer variance_scaling_initializer xavier_initializer "
        "xavier_initializer_conv2d=xavier_initializer",
        "tf.compat.v1.feature_column": "bucketized_column "
        "create_feature_spec_for_parsing=make_parse_example_spec",
    },
    "learn": {
        "contrib_learn": "Experiment learn_runner make_export_strategy run",
        "estimator": "ModeKeys RunConfig",
    },
    "lookup": {
        "contrib_lookup": "index_table_from_file index_table_from_tensor "
        "index_to_string_table_from_file index_to_string_table_from_tensor",
        "tf.compat.v1.lookup": "HashTable=StaticHashTable KeyValueTensorInitializer TextFileIndex "
        "TextFileInitializer",
        "tf.compat.v1.lookup.experimental": "MutableHashTable",
    },
    "metrics": {
        "contrib_metrics": "accuracy aggregate_metric_map f1_score streaming_accuracy "
        "streaming_auc streaming_false_negatives streaming_false_negatives_at_thresholds "
        "streaming_false_positives streaming_false_positives_at_thresholds "
        "streaming_mean_absolute_error streaming_mean_cosine_distance streaming_mean_iou "
        "streaming_mean_relative_error streaming_mean_squared_error streaming_precision "
        "streaming_precision_at_thresholds streaming_recall streaming_recall_at_thresholds "
        "streaming_root_mean_squared_error streaming_sensitivity_at_specificity "
        "streaming_sparse_average_precision_at_k streaming_sparse_precision_at_k "
        "streaming_sparse_recall_at_k "
        "streaming_specificity_at_sensitivity streaming_true_negatives "
        "streaming_true_negatives_at_thresholds streaming_true_positives "
        "streaming_true_positives_at_thresholds",
        "tf.compat.v1": "confusion_matrix",
        "tf.compat.v1.metrics": "streaming_mean=mean streaming_mean_tensor=mean_tensor "
        "streaming_percentage_less=percentage_below",
        "tf.sets": "set_difference=difference set_intersection=intersection set_size=size "
        "set_union=union",
    },
    "opt": {
        "contrib_opt": "AdamWOptimizer DecoupledWeightDecayExtension LazyAdamOptimizer "
        "MomentumWOptimizer MovingAverageOptimizer extend_with_decoupled_weight_decay",
    },
    "predictor": {"contrib_predictor": "from_estimator from_saved_model"},
    "rnn": {
        "contrib_rnn": "BasicLSTMCell BasicRNNCell DeviceWrapper DropoutWrapper GRUCell "
        "LSTMBlockFusedCell LSTMCell LSTMStateTuple MultiRNNCell RNNCell ResidualWrapper "
        "TimeReversedFusedRNN stack_bidirectional_dynamic_rnn",
        "tf.compat.v1.nn": "static_bidirectional_rnn static_rnn",
    },
    "summary": {
        "contrib_summary": "always_record_summaries audio histogram image never_record_summaries "
        "record_summaries_every_n_global_steps scalar",
        "tf.compat.v1.summary": "all_summary_ops=all_v2_summary_ops",
        "tf.summary": "create_file_writer create_summary_file_writer=create_file_writer flush",
    },
    "tpu": {
        "estimator.config.tpu_context": "TPUContext",
        "estimator.tpu": "CrossShardOptimizer InputPipelineConfig RunConfig TPUConfig TPUEstimator "
        "TPUEstimatorSpec",
        "tensorflow.python.tpu.tpu_function": "get_tpu_context",
        "tf.compat.v1.tpu": "batch_parallel bfloat16_scope core cross_replica_sum "
        "initialize_system outside_compilation replicate rewrite shard shutdown_system",
    },
    "training": {
        "contrib_training": "HParams SummaryAtEndHook",
        "tf.train": "checkpoints_iterator",
    },
    "util": {"tf": "constant_value=get_static_value make_ndarray make_tensor_proto"},
}

# What replaces a package, or a name of one.
GONE = {
    "autograph": "Use tf.autograph.",
    "boosted_trees": "Use TensorFlow Decision Forests, or another library of trees.",
    "compiler": "Use tf.xla.experimental.jit_scope, or tf.function(jit_compile=True).",
    "cudnn_rnn": "Use tf.compat.v1.keras.layers.CuDNNLSTM or tf.keras.layers.LSTM.",
    "data": "Use tf.data.",
    "data.Iterator": "Use tf.data.Iterator.",
    "data.rejection_resample": "Use tf.data.experimental.rejection_resample.",
    "distribute.AllReduceCrossDeviceOps": "Use tf.distribute.HierarchicalCopyAllReduce.",
    "distribute.AllReduceCrossTowerOps": "Use tf.distribute.HierarchicalCopyAllReduce.",
    "distribute.DistributeConfig": "Use RunConfig(train_distribute=..., eval_distribute=...).",
    "distributions": "Install tensorflow-probability, or use tf.compat.v1.distributions.",
    "eager": "Use tf.compat.v1.enable_eager_execution and tf.compat.v1.GradientTape.",
    "estimator.SavedModelEstimator": "Pass the SavedModel's path as `warm_start_from`.",
    "estimator.TowerOptimizer": "Use RunConfig(strategy='mirrored').",
    "estimator.export_all_saved_models": "Use experimental_export_all_saved_models.",
    "estimator.export_saved_model_for_mode": "Use export_saved_model(..., experimental_mode=...).",
    "estimator.replicate_model_fn": "Use RunConfig(strategy='mirrored').",
    "factorization": "Use tf.compat.v1.estimator.experimental.KMeans, or a `model_fn`.",
    "feature_column": "Use tf.feature_column, and tf.keras.layers for sequences.",
    "ffmpeg": "Use tensorflow-io.",
    "framework": "Install tf-slim, which has most of its names.",
    "gan": "Install tensorflow-gan, and import tensorflow_gan.",
    "graph_editor": "Use tf.compat.v1.graph_util.",
    "hadoop": "Use tensorflow-io.",
    "hooks": "Use tf.compat.v1.train.ProfilerHook.",
    "image": "Use tf.image, or keras.layers for rotations and the like.",
    "kafka": "Use tensorflow-io.",
    "keras": "Use tf.keras.",
    "layers": "Install tf-slim, which has the other layers.",
    "layers.bow_encoder": "Use `embed_sequence`, then tf.reduce_mean.",
    "learn": "Use tf.estimator, tf.data and tf.keras.layers.",
    "learn.DNNClassifier": "Use tf.estimator.DNNClassifier.",
    "learn.DNNRegressor": "Use tf.estimator.DNNRegressor.",
    "learn.Estimator": "Use tf.estimator.Estimator: its `model_fn` returns an EstimatorSpec.",
    "learn.LinearClassifier": "Use tf.estimator.LinearClassifier.",
    "learn.LinearRegressor": "Use tf.estimator.LinearRegressor.",
    "learn.datasets": "Install tensorflow-datasets.",
    "legacy_seq2seq": "Use a `model_fn` with tf.keras.layers, or Keras's attention layers.",
    "lite": "Use tf.lite.",
    "lookup.IdTableWithHashBuckets": "Use tf.lookup.StaticVocabularyTable, of an initializer.",
    "losses": "Use tf.compat.v1.losses.",
    "memory_stats": "Use tf.config.experimental.get_memory_info.",
    "metrics": "Install tf-slim, which has the other metrics.",
    "mixed_precision": "Use RunConfig(compute_dtype='bfloat16').",
    "model_pruning": "Install tensorflow-model-optimization.",
    "nccl": "Use RunConfig(strategy='mirrored').",
    "nn": "Use tf.nn.",
    "opt": "Use tf.keras.optimizers, or a subclass of tf.compat.v1.train.Optimizer.",
    "opt.AdaMaxOptimizer": "Use tf.keras.optimizers.Adamax.",
    "opt.MultitaskOptimizerWrapper": "Use an optimizer of tf.compat.v1.train.",
    "opt.NadamOptimizer": "Use tf.keras.optimizers.Nadam.",
    "quantize": "Install tensorflow-model-optimization.",
    "rnn": "Use tf.compat.v1.nn.rnn_cell, or tf.keras.layers.",
    "rnn.LSTMBlockCell": "Use tf.compat.v1.nn.rnn_cell.LSTMCell.",
    "saved_model": "Use tf.compat.v1.saved_model.",
    "seq2seq": "Use a `model_fn` with tf.keras.layers, or Keras's attention layers.",
    "session_bundle": "Use tf.compat.v1.saved_model.",
    "signal": "Use tf.signal.",
    "slim": "Install tf-slim and tf-keras: pip install tf-slim tf-keras.",
    "sparsemax": "Use a few ops of your own: a sort and a cumulative sum.",
    "staging": "Use tf.data.Dataset.prefetch.",
    "stat_summarizer": "Use the profiler: RunConfig(profile_steps=...).",
    "stateless": "Use tf.random.stateless_uniform and the like.",
    "tensor_forest": "Use TensorFlow Decision Forests, or another library of trees.",
    "tensorboard": "Use the tensorboard package.",
    "tensorrt": "Use tf.compat.v2.experimental.tensorrt.",
    "tfprof": "Use the profiler: RunConfig(profile_steps=...).",
    "timeseries": "Use a `model_fn`.",
    "tpu": "Use tf.compat.v1.tpu, or tensorflow.python.tpu.",
    "tpu.AsyncCheckpointSaverHook": "Use RunConfig(async_checkpoints=True).",
    "tpu.async_checkpoint": "Use RunConfig(async_checkpoints=True).",
    "tpu.keras_to_tpu_model": "Use estimator.keras.model_to_estimator.",
    "training.GreedyLoadBalancingStrategy": "Use RunConfig(ps_placement='by_size').",
    "training.bucket_by_sequence_length": "Use tf.data.Dataset.bucket_by_sequence_length.",
    "training.byte_size_load_fn": "Use RunConfig(ps_placement='by_size').",
    "training.create_train_op": "Install tf-slim: tf_slim.learning.create_train_op.",
    "training.evaluate_once": "Use an Estimator's `evaluate`, or tf_slim.evaluation.",
    "training.stratified_sample": "Use tf.data.Dataset.sample_from_datasets.",
    "training.wait_for_new_checkpoint": "Use tf.train.checkpoints_iterator.",
    "util.loader": "Use tf.load_op_library.",
}
