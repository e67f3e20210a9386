"""The file that names the checkpoint whose evaluation and exports have not come to their end."""

from __future__ import annotations

import contextlib
import os

import tensorflow as tf

from estimator.console import log
from estimator.summary.whole_file import write_file

_FAILED = " failed"


class UnfinishedStep:
    """The file in the directory of an EvalSpec's evaluations, which the next process reads.

    Attributes:
      left: the step that an earlier process has left unfinished; None if there is none.
    """

    def __init__(self, eval_dir: str) -> None:
        """Reads the file, if there is one.

        Args:
          eval_dir: the directory of the evaluations.
        """
        self._path = os.path.join(eval_dir, "unfinished-step")
        text = self._read()
        number = text.removesuffix(_FAILED)
        self.left = int(number) if number.isdecimal() else None
        self._has_failed = self.left is not None and text.endswith(_FAILED)

    def write(self, step: int | None) -> None:
        """Notes the step that is to be evaluated; whether it failed before stays known."""
        self._write(f"{step}{_FAILED}" if self._is_second_try(step) else str(step))

    def note_failure(self, step: int | None) -> None:
        """Has the next process try once more, but not if this one has done so already.

        What always fails must not keep a training that is started again from going on.
        """
        if self._is_second_try(step):
            self.remove()
        else:
            self._write(f"{step}{_FAILED}")

    def remove(self) -> None:
        """Notes that nothing is unfinished."""
        with contextlib.suppress(tf.errors.OpError):
            tf.io.gfile.remove(self._path)

    def _is_second_try(self, step: int | None) -> bool:
        return self._has_failed and step == self.left

    def _read(self) -> str:
        try:
            with tf.io.gfile.GFile(self._path) as file:
                return str(file.read())
        except (tf.errors.NotFoundError, UnicodeDecodeError):
            return ""

    def _write(self, text: str) -> None:
        try:
            tf.io.gfile.makedirs(os.path.dirname(self._path))
            write_file(self._path, text.encode())
        except tf.errors.OpError as error:
            log.warning("%s cannot be written: %s", self._path, error.message)
