"""What the contract says and this project does not do yet, by file and reason.

Each entry is a test that passes on TensorFlow 2.15, must fail here, and goes when it passes.
"""

NOT_YET: dict[str, dict[str, list[str]]] = {
    "test_constructor.py": {
        "small points": [
            "test_without_model_dir_a_temporary_one_is_made[empty]",
            "test_params_that_model_fn_does_not_take_are_a_value_error",
        ],
        "errors of the documented type": [
            "test_wrong_config_is_a_value_error[{'a': 1}]",
            "test_wrong_config_is_a_value_error['config']",
            "test_wrong_config_is_a_value_error[<class 'estimator.config.run_config.RunConfig'>]",
            "test_wrong_model_fn_is_a_value_error[None]",
            "test_wrong_warm_start_is_a_value_error",
        ],
    },
    "test_evaluate.py": {
        "tags of images": [
            "test_a_metric_may_be_a_summary",
        ],
        "checkpoint_path in the events of evaluations": [
            "test_path_of_the_checkpoint_is_in_the_events",
        ],
        "errors of the documented type": [
            "test_model_fn_that_returns_no_spec_is_a_value_error",
        ],
    },
    "test_inputs.py": {
        "input functions that return tensors": [
            "test_called_by_the_program_it_returns_tensors[numpy]",
            "test_called_by_the_program_it_returns_tensors[pandas]",
            "test_an_input_fn_around_it[numpy]",
            "test_an_input_fn_around_it[pandas]",
        ],
    },
    "test_run_config.py": {
        "errors of the documented type": [
            "test_wrong_value_is_a_value_error[made-tf_random_seed of 1.5]",
            "test_wrong_value_is_a_value_error[made-tf_random_seed in text]",
            "test_wrong_value_is_a_value_error[made-session_config in a dict]",
            "test_wrong_value_is_a_value_error[made-worker delay of 1.5]",
            "test_wrong_value_is_a_value_error[made-device_fn in text]",
            "test_wrong_value_is_a_value_error[replaced-tf_random_seed of 1.5]",
            "test_wrong_value_is_a_value_error[replaced-tf_random_seed in text]",
            "test_wrong_value_is_a_value_error[replaced-session_config in a dict]",
            "test_wrong_value_is_a_value_error[replaced-worker delay of 1.5]",
            "test_wrong_value_is_a_value_error[replaced-device_fn in text]",
        ],
        "RunConfig: small": [
            "test_none_is_accepted[keep_checkpoint_every_n_hours]",
        ],
    },
    "test_tf_config.py": {
        "errors of the documented type": [
            "test_service_must_be_a_dict",
        ],
    },
    "test_train.py": {
        "files: step 0, graph.pbtxt, positions, the first loss": [
            "test_checkpoints_are_saved_at_the_interval_and_at_both_ends",
            "test_listener_is_told_of_every_save",
            "test_file_is_written[graph.pbtxt]",
            "test_index_files_are_those_of_checkpoints",
            "test_graph_file_holds_the_variables",
            "test_loss_is_recorded_at_the_first_step",
        ],
    },
    "test_train_and_evaluate.py": {
        "exporters": [
            "test_latest_exporter_keeps_the_newest",
            "test_latest_exporter_keeps_five_by_default",
            "test_best_exporter_compares_by_a_function_of_the_program",
            "test_wrong_compare_fn_is_a_value_error[None]",
            "test_best_exporter_needs_a_result[None]",
        ],
    },
    "test_train_arguments.py": {
        "errors of the documented type": [
            "test_model_fn_that_returns_no_spec_is_a_value_error[None]",
            "test_model_fn_that_returns_no_spec_is_a_value_error[{'loss': 1}]",
            "test_model_fn_that_returns_no_spec_is_a_value_error[3]",
        ],
        "small points": [
            "test_input_fn_may_return[plain lists]",
        ],
    },
}
