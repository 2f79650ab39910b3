"""The texts that planning itself knows: what it compares with, and what it makes names of.

Found in the modules of the core, so that nobody has to keep a list: constants, values of
enumerations, and texts in functions. A text of a snapshot that is among them means something, and
stays when names are replaced.
"""

import sys
from collections.abc import Iterable, Iterator
from enum import Enum
from functools import cache
from types import CodeType, FunctionType, MappingProxyType, ModuleType
from typing import Any, Final

_MODULES: Final = ("koord.core.", "koord.api.keys.")
MOST: Final = 64
"""Characters; longer texts are for people."""
_DEEPEST: Final = 8
_FIELDS: Final = "__dataclass_fields__"


@cache
def find_vocabulary() -> frozenset[str]:
    """Return all texts that the modules of the core name."""
    modules = [module for name, module in sys.modules.items() if name.startswith(_MODULES)]
    return frozenset(
        text
        for module in modules
        for text in _find_in_module(module)
        if len(text) <= MOST and text and not any(map(str.isspace, text))
    )


def _find_in_module(module: ModuleType) -> Iterator[str]:
    for name, value in list(vars(module).items()):
        is_own = not name.startswith("__")
        if is_own and getattr(value, "__module__", module.__name__) == module.__name__:
            yield from _find_in(value, 0)


def _find_in(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield str(value)
    elif depth < _DEEPEST:
        for part in _parts_of(value):
            yield from _find_in(part, depth + 1)


def _parts_of(value: Any) -> Iterable[Any]:  # noqa: PLR0911 - one for each sort of value
    match value:
        case dict() | MappingProxyType():
            return (*value.keys(), *value.values())
        case tuple() | list() | set() | frozenset():
            return value
        case Enum():
            return (value.value,)
        case CodeType():
            return value.co_consts
        case FunctionType():
            return (value.__code__,)
        case property():
            return (value.fget,)
        case staticmethod() | classmethod():
            return (value.__func__,)
        case type():
            return _parts_of_class(value)
        case _:
            pass
    return [getattr(value, name, None) for name in getattr(value, _FIELDS, ())]


def _parts_of_class(kind: type) -> Iterator[Any]:
    for name, part in list(vars(kind).items()):
        if not name.startswith("__") or isinstance(part, FunctionType):
            yield part
    for field in getattr(kind, _FIELDS, {}).values():
        yield field.default
