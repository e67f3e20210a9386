"""What the contract says and this project does not do yet, by file and reason.

Each entry is a test that passes on TensorFlow 2.15, must fail here, and goes when it passes.
"""

NOT_YET: dict[str, dict[str, list[str]]] = {}
