"""tf.keras as tf-keras, and with it tf.compat.v1.layers: for a whole process, or not at all."""

import os
import subprocess
import sys

IS_LEGACY = os.environ.get("TF_USE_LEGACY_KERAS") == "1"


def run_tests(path, expression):
    """Runs some tests of a file in a process where IS_LEGACY holds; returns what pytest prints."""
    command = [sys.executable, "-m", "pytest", path, "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "-k", expression],
        env={**os.environ, "TF_USE_LEGACY_KERAS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout
