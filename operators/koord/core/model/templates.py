"""Templates: texts with named fields, filled in from the value that they are about.

``{node}`` is replaced by that attribute of the value, ``{there.node}`` by one of an attribute, and
``{there.text()}`` by what a method returns. Behind a colon stands how it is written:

``{pods:# pod}``
    counted: ``1 pod``, ``2 pods``; things that have a length count by it
``{pods:is|are}``
    the first part for one or none, the second for more
``{plan:? (plan {plan})|nothing}``
    the first part if there is any, else the second, which may be missing
``{nodes:list}``, ``{problems:list; {0} {1}}``
    the first of several, with another separator or a template for each
``{offer:part}``
    a template itself, declared with the class
``{message:cut}``
    one of ``FORMATS``; anything else is a format of Python, such as ``{steps:,}``

Parts are templates, too. A template is read once, when it is first filled in; so values with
texts cost no more than others until somebody asks for one. Knows no domain.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sized
from functools import cache
from operator import attrgetter, itemgetter
from string import Formatter
from typing import Any, Final, TypeAlias

from koord.core.model.text import MAX_LISTED, cut, format_time, listed, named, plural

_Writer: TypeAlias = Callable[[Any], str]

FORMATS: Final[dict[str, _Writer]] = {
    "capital": lambda text: f"{text[:1].upper()}{text[1:]}",
    "cut": cut,
    "names": named,
    "most names": lambda names: named(names, MAX_LISTED),
    "time": format_time,
}
_LIST: Final = re.compile(r"list(;?)(?: (.*))?")


def fill(template: str, value: object) -> str:
    """Return the text of a template for a value."""
    return _read(template)(value)


def fill_all(templates: Iterable[str], value: object) -> Iterator[str]:
    """Yield the texts of templates for a value, but those that are empty."""
    return filter(None, (fill(template, value) for template in templates))


@cache
def _read(template: str) -> _Writer:
    parts = [
        (literal, None if path is None else _read_field(_find(path), spec or ""))
        for literal, path, spec, _ in Formatter().parse(template)
    ]
    if all(write is None for _, write in parts):
        text = "".join(literal for literal, _ in parts)
        return lambda _: text
    return lambda value: "".join(
        [f"{literal}{write(value)}" if write else literal for literal, write in parts]
    )


def _find(path: str) -> Callable[[Any], Any]:
    if not path:
        return lambda value: value
    if path.isdecimal():
        return itemgetter(int(path))
    if path.endswith("()"):
        find = attrgetter(path.removesuffix("()"))
        return lambda value: find(value)()
    return attrgetter(path)


def _read_field(find: Callable[[Any], Any], spec: str) -> _Writer:
    if spec.startswith("?"):
        there, missing = _read_choice(spec[1:])
        return lambda value: (there if find(value) else missing)(value)
    if spec.startswith("# "):
        return lambda value: plural(_count(find(value)), spec[2:])
    if (several := _LIST.fullmatch(spec)) is not None:
        separator, each = f"{several[1] or ','} ", _read(several[2] or "{}")
        return lambda value: listed(map(each, find(value)), separator)
    if spec == "part":
        return lambda value: fill(find(value), value)
    if "|" in spec:
        single, many = _read_choice(spec)
        return lambda value: (many if _count(find(value)) > 1 else single)(value)
    write = FORMATS.get(spec, lambda content: format(content, spec))
    return lambda value: write(find(value))


def _count(value: Any) -> int:
    return len(value) if isinstance(value, Sized) else int(value)


def _read_choice(spec: str) -> tuple[_Writer, _Writer]:
    """Read two templates with a bar between them that is in neither; the second may be missing."""
    depth = 0
    for at, char in enumerate(spec):
        depth += (char == "{") - (char == "}")
        if char == "|" and not depth:
            return _read(spec[:at]), _read(spec[at + 1 :])
    return _read(spec), _read("")
