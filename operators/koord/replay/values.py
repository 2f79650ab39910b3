"""Values of the core as JSON, and back: what snapshots are written in.

A value names its class, and says the fields that differ from their defaults. So what is written is
what planning knows of an object, and nothing else: images, commands and variables of containers
were never decoded, and there is no field for them. A value that many objects share, such as the
shape of a pod, is written once and named by its number after that.

Snapshots come from strangers. Only classes of the core that are mere values are made, of modules
that are loaded anyway; numbers name what was read before; and however often parts are shared, what
is read counts as large as if it were written out. Knows neither files nor what is planned.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from math import isfinite
from types import MappingProxyType
from typing import Any, Final, TypeAlias, cast

Document: TypeAlias = Any
"""What JSON can say."""
MOST_PARTS: Final = 1 << 20
"""Of one object, with all that it shares written out."""
MOST_SHARED: Final = 1 << 22
_LARGEST: Final = 1 << 63
_PARAMETERS: Final = "__dataclass_params__"
_CLASS: Final = "$"
_OF: Final = "of"
_MAP, _PAIRS, _LIST, _SET = "map", "pairs", "list", "set"
_SHARED, _INTEGER, _FLOAT = "shared", "integer", "float"
_MODULES: Final = ("koord.core.", "koord.api.", "koord.answers.reading", "koord.replay.")


class UnreadableValue(ValueError):  # noqa: N818 - what it says is what is wrong
    """What is written stands for no value of this version."""


class NoForm(TypeError):  # noqa: N818 - the same
    """A value of a class that is no mere value."""


class ValueWriter:
    """Writes the objects of one file, one after the other."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        """Id of a part that was written -> its number."""
        self._parts: list[object] = []
        """Those parts: as long as they are there, nothing else has their ids."""

    def write(self, value: object) -> Document:
        """Return an object as JSON has it. Raises ``NoForm``."""
        write_plain = _PLAIN.get(type(value))
        if write_plain is not None:
            return write_plain(self, value)
        if isinstance(value, Enum):
            return {_CLASS: _name_of(type(value)), _OF: value.name}
        kind: Any = type(value)
        form = _form_of(kind)
        return self._write_collection(value) if form is None else self._write_fields(value, form)

    def _write_itself(self, value: Document) -> Document:
        return value

    def _write_integer(self, value: int) -> Document:
        return value if -_LARGEST <= value < _LARGEST else {_CLASS: _INTEGER, _OF: hex(value)}

    def _write_float(self, value: float) -> Document:
        return value if isfinite(value) else {_CLASS: _FLOAT, _OF: str(value)}

    def _write_tuple(self, value: tuple[object, ...]) -> Document:
        return [self._write_part(item) for item in value]

    def _write_part(self, value: object) -> Document:
        if not is_dataclass(value):
            return self.write(value)
        number = self._numbers.get(id(value))
        if number is not None:
            return {_CLASS: _SHARED, _OF: number}
        document = self.write(value)
        self._numbers[id(value)] = len(self._parts)
        self._parts.append(value)
        return document

    def _write_fields(self, value: object, form: "_Form") -> Document:
        document: dict[str, Document] = {_CLASS: form.name}
        for name, default in form.defaults:
            item = getattr(value, name)
            if item is default or (type(item) is type(default) and item == default):
                continue
            document[name] = self._write_part(item)
        return document

    def _write_collection(self, value: object) -> Document:
        if isinstance(value, Mapping):
            if all(type(key) is str for key in value):
                return {_CLASS: _MAP, _OF: {k: self._write_part(v) for k, v in value.items()}}
            pairs = [[self._write_part(k), self._write_part(v)] for k, v in value.items()]
            return {_CLASS: _PAIRS, _OF: pairs}
        if isinstance(value, list):
            return {_CLASS: _LIST, _OF: [self._write_part(item) for item in value]}
        if isinstance(value, set | frozenset):
            # Parts of sets are hashable, and texts or numbers nearly always.
            return {_CLASS: _SET, _OF: [self._write_part(item) for item in sorted(value, key=repr)]}
        raise NoForm(f"a {type(value).__name__} has no form in a snapshot")


_PLAIN: Final[Mapping[type, Callable[[ValueWriter, Any], Document]]] = {
    type(None): ValueWriter._write_itself,  # noqa: SLF001 - a table of the class
    str: ValueWriter._write_itself,  # noqa: SLF001 - the same
    bool: ValueWriter._write_itself,  # noqa: SLF001 - the same
    int: ValueWriter._write_integer,  # noqa: SLF001 - the same
    float: ValueWriter._write_float,  # noqa: SLF001 - the same
    tuple: ValueWriter._write_tuple,  # noqa: SLF001 - the same
}


class ValueReader:
    """Reads the objects of one file, in the order in which they were written."""

    def __init__(self) -> None:
        self._parts: list[tuple[object, int]] = []
        """What may be shared, and of how many parts it is."""
        self._size = 0
        """Parts of the object that is being read."""

    def read(self, document: Document) -> object:
        """Return an object. Raises ``UnreadableValue``."""
        self._size = 0
        try:
            return self._read(document)
        except UnreadableValue:
            raise
        except RecursionError as error:
            raise UnreadableValue("its parts are nested too deeply") from error
        except (TypeError, ValueError, LookupError, OverflowError, AttributeError) as error:
            raise UnreadableValue(f"it makes no sense: {error}") from error

    def _read(self, document: Document) -> object:
        self._size += 1
        if self._size > MOST_PARTS:
            raise UnreadableValue(f"it has more than {MOST_PARTS} parts")
        kind = type(document)
        if kind is list:
            return tuple([self._read_part(item) for item in document])
        if kind is dict:
            return self._read_tagged(document)
        return document

    def _read_part(self, document: Document) -> object:
        if type(document) is not dict:
            return self._read(document)
        if document.get(_CLASS) == _SHARED:
            return self._find_shared(document[_OF])
        before = self._size
        value = self._read(document)
        if is_dataclass(value):
            if len(self._parts) >= MOST_SHARED:
                raise UnreadableValue(f"there are more than {MOST_SHARED} parts")
            self._parts.append((value, self._size - before))
        return value

    def _find_shared(self, number: object) -> object:
        if not isinstance(number, int) or not 0 <= number < len(self._parts):
            raise UnreadableValue(f"there is no part {number!r} before it")
        value, size = self._parts[number]
        self._size += size
        if self._size > MOST_PARTS:
            raise UnreadableValue(f"it has more than {MOST_PARTS} parts")
        return value

    def _read_tagged(self, document: Mapping[str, Document]) -> object:
        name = document[_CLASS]
        read_collection = _COLLECTIONS.get(name)
        if read_collection is not None:
            return read_collection(self, document[_OF])
        kind = find_classes().get(name)
        if kind is None:
            raise UnreadableValue(f"this version has no {name!r}")
        if issubclass(kind, Enum):
            return kind[document[_OF]]
        form = _form_of(cast("Any", kind))
        if form is None:
            raise UnreadableValue(f"{name} is no value")
        if not document.keys() <= form.names:
            unknown = document.keys() - form.names
            raise UnreadableValue(f"{name} has no {', '.join(sorted(unknown))} in this version")
        self._size += len(document)
        parts = {
            name: part if type(part) in _PLAIN else self._read_part(part)
            for name, part in document.items()
        }
        del parts[_CLASS]
        return kind(**parts)

    def _read_map(self, parts: Mapping[str, Document]) -> object:
        return {key: self._read_part(item) for key, item in parts.items()}

    def _read_pairs(self, parts: list[Document]) -> object:
        return {self._read_part(key): self._read_part(item) for key, item in parts}

    def _read_list(self, parts: list[Document]) -> object:
        return [self._read_part(item) for item in parts]

    def _read_set(self, parts: list[Document]) -> object:
        return frozenset(self._read_part(item) for item in parts)

    def _read_integer(self, text: str) -> object:
        if len(text) > MOST_DIGITS:
            raise UnreadableValue("a number is too long")
        return int(text, 16)

    def _read_float(self, text: str) -> object:
        return float(text)


MOST_DIGITS: Final = 1 << 12
"""Of a set of processors, as a number."""
_COLLECTIONS: Final[Mapping[str, Callable[[ValueReader, Any], object]]] = {
    _MAP: ValueReader._read_map,  # noqa: SLF001 - a table of the class
    _PAIRS: ValueReader._read_pairs,  # noqa: SLF001 - the same
    _LIST: ValueReader._read_list,  # noqa: SLF001 - the same
    _SET: ValueReader._read_set,  # noqa: SLF001 - the same
    _INTEGER: ValueReader._read_integer,  # noqa: SLF001 - the same
    _FLOAT: ValueReader._read_float,  # noqa: SLF001 - the same
}


class _Form:
    """The fields of a class, and their defaults; private ones are made by the class itself."""

    def __init__(self, kind: Any) -> None:
        self.name = _name_of(kind)
        self.defaults = tuple(_find_defaults(kind))
        self.names = frozenset((_CLASS, *(name for name, _ in self.defaults)))


def _find_defaults(kind: Any) -> Iterator[tuple[str, object]]:
    if issubclass(kind, tuple):
        for name in kind._fields:
            yield name, kind._field_defaults.get(name, MISSING)
        return
    for each in fields(kind):
        if each.init and each.name[0] != "_":
            make = each.default_factory
            yield each.name, each.default if make is MISSING else make()


@cache
def _form_of(kind: Any) -> _Form | None:
    """Return the form of a class; None if its objects are no mere values."""
    return _Form(kind) if _is_value(kind) else None


def _name_of(kind: type) -> str:
    if find_classes().get(kind.__name__) is not kind:
        raise NoForm(f"{kind.__module__}.{kind.__name__} has no form in a snapshot")
    return kind.__name__


@cache
def find_classes() -> Mapping[str, type]:
    """Return the classes of values by name; what is loaded later is not among them."""
    classes: dict[str, type] = {}
    doubles: set[str] = set()
    for name, module in sorted(sys.modules.items()):
        if not name.startswith(_MODULES):
            continue
        for value in list(vars(module).values()):
            if not isinstance(value, type) or value.__module__ != name:
                continue
            is_known = issubclass(value, Enum) or _is_value(value)
            if is_known and classes.setdefault(value.__name__, value) is not value:
                doubles.add(value.__name__)
    return MappingProxyType({name: kind for name, kind in classes.items() if name not in doubles})


def _is_value(kind: Any) -> bool:
    parameters = getattr(kind, _PARAMETERS, None)
    if parameters is not None:
        return bool(parameters.frozen)
    return issubclass(kind, tuple) and hasattr(kind, "_field_defaults")


def is_value(value: object) -> bool:
    """Whether a snapshot can hold a value of this class."""
    return find_classes().get(type(value).__name__) is type(value)
