"""The names in the code of a function: of globals, of attributes and of modules that it imports."""

from __future__ import annotations

import dataclasses
import dis
import functools
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any

# What reads globals or attributes that the code does not name.
_READ_VARIABLES = frozenset({"globals", "eval", "exec"})
_READ_ATTRIBUTES = frozenset({"vars", "dir", "asdict", "astuple"})


@dataclasses.dataclass(frozen=True)
class Names:
    """The names in a function's code, and in that of functions inside it.

    Attributes:
      variables: of globals.
      attributes: of attributes. What is written as a string may be such a name, too, as in
        `FLAGS["name"]`.
      imports: of modules, each with the number of its leading dots.
    """

    variables: frozenset[str]
    attributes: frozenset[str]
    imports: frozenset[tuple[int, str]]

    @functools.cached_property
    def reads_all_variables(self) -> bool:
        """Whether the code may read globals that it does not name, as by `globals()`."""
        return not _READ_VARIABLES.isdisjoint(self.variables)

    @functools.cached_property
    def reads_all_attributes(self) -> bool:
        """Whether the code may read attributes that it does not name, as by `vars(settings)`."""
        is_called = not _READ_ATTRIBUTES.isdisjoint(self.variables)
        return is_called or not self.attributes.isdisjoint({"__dict__", "asdict", "astuple"})

    def modules(self, variables: Mapping[str, Any]) -> Iterator[types.ModuleType]:
        """Yields the modules, as far as they have been imported.

        Args:
          variables: the globals of the function, which say what its relative imports begin at.
        """
        for num_dots, name in self.imports:
            module = sys.modules.get(_full_name(num_dots, name, variables))
            if isinstance(module, types.ModuleType):
                yield module


@functools.lru_cache(maxsize=10_000)
def find_names(code: types.CodeType) -> Names:
    """Finds the names in a function's code."""
    variables: set[str] = set()
    attributes = {text for text in code.co_consts if isinstance(text, str) and text.isidentifier()}
    imports: set[tuple[int, str]] = set()
    constants: list[Any] = [0, None]  # The last two before an import are its dots and its names.
    for part in dis.get_instructions(code):
        if part.opname == "LOAD_CONST":
            constants = [constants[-1], part.argval]
        elif part.opname == "IMPORT_NAME":
            imports.update(_imports(part.argval, *constants))
        elif part.argval in code.co_names:
            is_global = part.opname in ("LOAD_GLOBAL", "LOAD_NAME")
            (variables if is_global else attributes).add(part.argval)
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            inside = find_names(inner)
            variables |= inside.variables
            attributes |= inside.attributes
            imports |= inside.imports
    return Names(frozenset(variables), frozenset(attributes), frozenset(imports))


def _imports(name: str, num_dots: int, names: tuple[str, ...] | None) -> Iterator[tuple[int, str]]:
    """Yields what an import binds or takes names from; the names may be modules, too."""
    yield num_dots, name
    if names is None:
        yield num_dots, name.partition(".")[0]
    for inner in names or ():
        yield num_dots, f"{name}.{inner}" if name else inner


def _full_name(num_dots: int, name: str, variables: Mapping[str, Any]) -> str:
    if not num_dots:
        return name
    package = variables.get("__package__") or variables.get("__name__", "").rpartition(".")[0]
    base = package.rsplit(".", num_dots - 1)[0]
    return f"{base}.{name}" if name else base
