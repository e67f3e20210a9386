"""What older packages do wrong, for tests that then cannot ask for it."""

import pytest
import tensorflow as tf

_VERSION = tuple(map(int, tf.__version__.split(".")[:2]))

obeys_log_level = pytest.mark.skipif(
    (2, 18) <= _VERSION < (2, 21),
    reason="TensorFlow 2.18 and 2.20 log all levels, whatever the environment says",
)


def _writes_quotes():
    """Whether a quote after a byte in octal is written as a text that can be read."""
    collection = tf.compat.v1.MetaGraphDef().collection_def["x"]
    collection.bytes_list.value.append(b'\x1a"')
    return r"\032\"" in str(collection)


writes_texts = pytest.mark.skipif(
    not _writes_quotes(), reason="protobuf 5.29 writes some texts that it cannot read"
)

has_tpu_bridge = pytest.mark.skipif(
    _VERSION < (2, 17), reason="TensorFlow 2.16 does not register its bridge to TPUs as a pass"
)
