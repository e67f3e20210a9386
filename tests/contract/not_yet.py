"""What the contract says and this project does not do yet, by file and reason.

Each entry is a test that passes on TensorFlow 2.15, must fail here, and goes when it passes.
"""

NOT_YET: dict[str, dict[str, list[str]]] = {
    "test_evaluate.py": {
        "tags of images": [
            "test_a_metric_may_be_a_summary",
        ],
        "checkpoint_path in the events of evaluations": [
            "test_path_of_the_checkpoint_is_in_the_events",
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
            "test_best_exporter_needs_a_result[None]",
        ],
    },
}
