"""Imports TensorFlow without showing what its C++ code logs. Must be imported before TensorFlow."""

import os
import tempfile

# TensorFlow obeys this after its import, during which it logs some lines nevertheless. So stderr,
# which C++ writes to by its number, goes to a file meanwhile, which is shown if the import fails.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
with tempfile.TemporaryFile() as held, open(os.dup(2), "wb") as stderr:
    os.dup2(held.fileno(), 2)
    try:
        import tensorflow  # noqa: F401
    except BaseException:
        held.seek(0)
        stderr.write(held.read())
        raise
    finally:
        os.dup2(stderr.fileno(), 2)
