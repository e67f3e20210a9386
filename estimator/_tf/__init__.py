"""The only package that uses private names of TensorFlow and Keras.

TensorFlow may change these names in any release. Each entry says why the public API is not enough,
and with which versions it is known to work, so that an upgrade concerns this folder alone.
"""

from estimator._tf.callers import (
    is_called_by_keras,
    is_left_to_step,
    is_made_by_keras,
    is_made_by_v1_layer,
    line_of,
)
from estimator._tf.checkpoint import (
    ConstantSaveable,
    checkpoint_initializers_outside_loops,
    initializer_before_checkpoint,
    meta_graphs_refused,
    object_graph_keys,
    object_saveables,
    savers_apart,
    slice_of,
)
from estimator._tf.collectives import collectives_in_sessions
from estimator._tf.data import components_replaced, map_in_line, ops_of_datasets_in
from estimator._tf.distribute import (
    PiggybackSlot,
    allows_partitions,
    copies,
    has_started_server,
    initializers_without_broadcast,
    is_for_workers,
    is_multi_worker,
    make_multi_worker_mirrored,
    make_parameter_server,
    number_collectives,
    piggyback_slots,
    replica_reaches_outer_graphs,
    variables_by_handle,
    variables_by_name,
)
from estimator._tf.equality import keras_compares_values
from estimator._tf.feature_columns import (
    ColumnInput,
    SharedEmbeddingColumn,
    as_current_column,
    identity_column,
    is_categorical,
    is_column,
    is_dense,
    is_embedding,
    is_sequence,
    scope_name,
)
from estimator._tf.gradients import (
    gradient_reduction,
    mean_gradients,
    scaled,
)
from estimator._tf.graph import (
    add_control_inputs,
    can_be_read_in,
    capture_source,
    cond,
    copy_op,
    foreign_captures,
    forget_waits,
    hashable_tensors,
    initialized_value,
    is_loop_body,
    is_ref,
    name_resources,
    names_in_use,
    names_shared,
    note_devices,
    noting_waits,
    outer_graphs,
    set_device,
    set_input,
    take_names,
    while_loop,
)
from estimator._tf.hooks import (
    final_ops,
    forget_request,
    last_step_of,
    listeners_of,
    listening,
    logging_hook_tensors,
    planned_stop,
    replace_logging_hook_tensors,
    set_steps_per_run,
    set_summary_tensors,
    step_timer,
    stops_at_last_step,
    summary_tensors,
    tell_next_step,
    tell_steps_so_far,
)
from estimator._tf.keras import (
    clones_uncompiled,
    compile_arguments,
    compiled_metrics,
    copied_lookup,
    copy_trainable,
    keras_additions_in_one_op,
    keras_constraints_shared,
    keras_functions_trusted,
    keras_layers,
    keras_policy,
    keras_variables_in_v1,
    metric_variables,
    names_without_weight_decay,
    tf_keras_classes_kept,
    tf_keras_constants_in_graph,
    tf_keras_updates_of_trained,
    variable_of,
)
from estimator._tf.keras_losses import (
    forget_tf_keras_losses,
    keras_loss,
    keras_loss_reductions_noted,
    keras_sums_over_replicas,
    last_loss_is_sum,
    tf_keras_containers,
    tf_keras_means_over_replicas,
    unscaled_keras_losses,
)
from estimator._tf.keras_names import (
    fresh_keras_names,
    keras_names_as_in_tf_keras,
    tf_keras_names_by_thread,
)
from estimator._tf.optimizers import (
    copied_legacy_optimizer,
    keras_optimizers_in_graphs,
    legacy_name,
    loss_scale,
    scaled_loss,
)
from estimator._tf.random import (
    keras_seeds_replaced,
    loop_counters,
    random_ops_replaced,
    swap_seed_counter,
)
from estimator._tf.replica_losses import keep_losses_apart, layer_regularizers_by_replica
from estimator._tf.replica_updates import keeps_own_copies
from estimator._tf.session import (
    FunctionSession,
    InterruptibleSession,
    MappedSession,
    make_callable,
    map_fetches,
    open_session,
    set_scaffold_parts,
    settings_of_tf_config,
    stopped_at_exit,
)
from estimator._tf.summary import (
    build_flush_of_writers,
    close_file_writer,
    file_writer,
    is_file_writer_lost,
    summary_ops_replaced,
    unique_event_files,
    writer_initializers,
)
from estimator._tf.sync_replicas import sync_replicas_in_line, sync_replicas_refused
from estimator._tf.tpu import (
    TPU_PROGRAM,
    compilable_ops,
    free_tpu_handles,
    is_in_tpu_program,
    is_initialized_tpu,
    note_initialized_tpu,
    per_replica,
    tpu_name,
    tpu_resolver,
)
from estimator._tf.v1_branches import after_v1_branches, is_in_v1_cond, is_in_v1_loop
from estimator._tf.v1_variables import (
    gradients_not_gated,
    non_slots_in_loops,
    optimizers_as_in_v1,
    variables_as_in_v1,
)
from estimator._tf.variable_use import (
    branches_noted,
    ends_of,
    is_stateful,
    keras_control_flow_v2,
    name_scopes_in_branches,
    ops_inside,
    runs_a_function,
    variable_source,
    written_handles,
    written_resources,
)
