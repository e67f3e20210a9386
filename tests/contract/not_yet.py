"""What the contract says and this project does not do yet, by file and reason.

Each entry is a test that passes on TensorFlow 2.15, must fail here, and goes when it passes.
"""

NOT_YET: dict[str, dict[str, list[str]]] = {
    "test_inputs.py": {
        "input functions that return tensors": [
            "test_called_by_the_program_it_returns_tensors[numpy]",
            "test_called_by_the_program_it_returns_tensors[pandas]",
            "test_an_input_fn_around_it[numpy]",
            "test_an_input_fn_around_it[pandas]",
        ],
    },
}
