"""A limit on the size of files, whose effect is that of a full disk."""

import contextlib
import resource


@contextlib.contextmanager
def no_file_larger_than(num_bytes):
    """Inside, writes beyond the limit fail."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
