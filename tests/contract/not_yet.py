"""What the contract says and this project does not do yet, by file and reason.

Each entry is a test that passes on TensorFlow 2.15, must fail here, and goes when it passes.
"""

NOT_YET: dict[str, dict[str, list[str]]] = {
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
        "further attributes of RunConfig": [
            "test_further_attributes_are_kept",
            "test_further_attributes_survive_replace",
        ],
        "RunConfig: small": [
            "test_none_is_accepted[keep_checkpoint_every_n_hours]",
        ],
    },
    "test_spec.py": {
        "specs: named tuples, defaults, losses": [
            "test_fields_and_their_order[EstimatorSpec-fields0]",
            "test_fields_and_their_order[TPUEstimatorSpec-fields1]",
            "test_unpacks_in_order[EstimatorSpec]",
            "test_unpacks_in_order[TPUEstimatorSpec]",
            "test_can_be_indexed[EstimatorSpec]",
            "test_can_be_indexed[TPUEstimatorSpec]",
            "test_default[predictions-default0]",
            "test_default[eval_metric_ops-default2]",
            "test_loss_of_one_element_becomes_a_scalar[EstimatorSpec-[1]-eval]",
            "test_loss_of_one_element_becomes_a_scalar[EstimatorSpec-[1, 1]-train]",
            "test_loss_of_one_element_becomes_a_scalar[EstimatorSpec-[1, 1]-eval]",
            "test_loss_of_one_element_becomes_a_scalar[EstimatorSpec-[1, 1, 1]-train]",
            "test_loss_of_one_element_becomes_a_scalar[EstimatorSpec-[1, 1, 1]-eval]",
            "test_loss_of_one_element_becomes_a_scalar[TPUEstimatorSpec-[1]-eval]",
            "test_loss_of_one_element_becomes_a_scalar[TPUEstimatorSpec-[1, 1]-train]",
            "test_loss_of_one_element_becomes_a_scalar[TPUEstimatorSpec-[1, 1]-eval]",
            "test_loss_of_one_element_becomes_a_scalar[TPUEstimatorSpec-[1, 1, 1]-train]",
            "test_loss_of_one_element_becomes_a_scalar[TPUEstimatorSpec-[1, 1, 1]-eval]",
            "test_loss_of_unknown_size_is_accepted[EstimatorSpec-[None]]",
            "test_loss_of_unknown_size_is_accepted[EstimatorSpec-[None, 1]]",
            "test_loss_of_unknown_size_is_accepted[TPUEstimatorSpec-[None]]",
            "test_loss_of_unknown_size_is_accepted[TPUEstimatorSpec-[None, 1]]",
            "test_metric_names_of_results_are_no_error_in_training[loss]",
            "test_metric_names_of_results_are_no_error_in_training[global_step]",
            "test_one_default_export_output[EstimatorSpec-dict]",
            "test_one_default_export_output[EstimatorSpec-tensor]",
            "test_one_default_export_output[TPUEstimatorSpec-dict]",
            "test_one_default_export_output[TPUEstimatorSpec-tensor]",
            "test_one_export_output_gets_the_default_name_too[EstimatorSpec]",
            "test_one_export_output_gets_the_default_name_too[TPUEstimatorSpec]",
            "test_several_export_outputs_need_the_default_name[EstimatorSpec]",
            "test_several_export_outputs_need_the_default_name[TPUEstimatorSpec]",
            "test_replacing_the_mode_is_a_value_error",
        ],
    },
    "test_tf_config.py": {
        "a task of type master": [
            "test_task_beside_a_master[master-0-cluster_spec]",
            "test_task_beside_a_master[master-0-task_type]",
            "test_task_beside_a_master[worker-1-cluster_spec]",
            "test_task_beside_a_master[ps-0-cluster_spec]",
        ],
        "default device filters": [
            "test_device_filters[chief]",
            "test_device_filters[worker]",
            "test_device_filters[ps]",
        ],
        "TF_CONFIG: port 0, unknown jobs, evaluators above 0": [
            "test_in_a_cluster[evaluator 3]",
            "test_in_a_cluster[port 0]",
            "test_in_a_cluster[an unknown job]",
            "test_in_a_cluster[a task of an unknown job]",
        ],
        "errors of the documented type": [
            "test_service_must_be_a_dict",
        ],
    },
}
