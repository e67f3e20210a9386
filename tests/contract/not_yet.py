"""What the contract says and this project does not do yet.

Each entry is a test that passes on TensorFlow 2.15, must fail here, and goes when it passes. By file and reason.
"""

NOT_YET: dict[str, dict[str, list[str]]] = {
    "test_table.py": {
        "specs": [
            "test_what_is_not_done_yet_names_tests_that_exist",
        ],
    },
}
