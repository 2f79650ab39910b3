"""Reads texts with manifests as kubectl reads them, whoever wrote them.

PyYAML follows YAML 1.1 literally: ``0000:09:00.0`` is a base-60 number, dates become Python
objects, and the second of two equal keys wins. And Python takes what neither JSON nor the API
server can hold: numbers of any length, infinite ones, keys of any type, values in a thousand
levels. All that is refused here, once, so that no rule that looks at a document meets it.
"""

import json
import re
from collections.abc import Hashable, Iterator
from itertools import chain
from math import isfinite
from typing import Any, Final

import yaml
from typing_extensions import override

from koord.api.json_text import refuse_half_pairs
from koord.api.parse import cut, format_field
from koord.api.untyped import to_list
from koord.api.yaml_text import UnicodeLoader

MAX_FILE_BYTES: Final = 4 * 1024 * 1024
MAX_VALUES: Final = 1_000_000
"""Values in all documents of one text, with aliases expanded."""
MAX_DEPTH: Final = 100
"""Levels of a document; the deepest schemas of CRDs have less than half of that."""
_LEAST, _MOST = -(1 << 63), (1 << 64) - 1
"""Whole numbers that JSON of the API server has."""

_INT: Final = re.compile(r"^[-+]?(0b[01_]+|0[0-7_]+|0x[0-9a-fA-F_]+|0|[1-9][0-9_]*)$")
_FLOAT: Final = re.compile(
    r"^([-+]?([0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)([eE][-+]?[0-9]+)?"
    r"|[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$"
)
_REPLACED: Final = {
    "tag:yaml.org,2002:int",
    "tag:yaml.org,2002:float",
    "tag:yaml.org,2002:timestamp",
}
_NO_JSON: Final = ("binary", "timestamp", "omap", "pairs", "set")
"""Tags of YAML whose values are none of JSON."""


class UnreadableError(ValueError):
    """The text is not YAML that kubectl accepts; the message says where."""


def read_documents(text: str) -> Iterator[Any]:
    """Yield the documents of a YAML text, without empty ones. Raises UnreadableError."""
    _check_size(text)
    try:
        for document in yaml.load_all(text, Loader=_ManifestLoader):
            if document is not None:
                _refuse_unplain(document)
                yield document
    except yaml.YAMLError as error:
        raise UnreadableError(_describe(error)) from error
    except UnreadableError:
        raise
    except (RecursionError, ValueError) as error:
        raise UnreadableError(f"is not YAML: {error}") from error


def read_json(text: str) -> Any:
    """Return the document of a JSON text, in which tabs may be. Raises UnreadableError."""
    _check_size(text)
    try:
        value = json.loads(text)
        refuse_half_pairs(value)
    except (RecursionError, ValueError) as error:
        raise UnreadableError(f"is not JSON: {error}") from error
    _refuse_unplain(value)
    return value


def unfold(document: Any) -> Iterator[Any]:
    """Yield the objects of a list, which kubectl creates one by one; what is none as it is."""
    if not isinstance(document, dict) or not str(document.get("kind")).endswith("List"):
        yield document
        return
    if not isinstance(document.get("items"), list):
        yield document
        return
    for each in to_list(document.get("items")):
        yield from unfold(each)


def _check_size(text: str) -> None:
    if len(text.encode(errors="surrogatepass")) > MAX_FILE_BYTES:
        raise UnreadableError(f"is larger than {MAX_FILE_BYTES} bytes")


def _describe(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 1}: {error.problem or error.context}"
    return str(error)


_Place = tuple[Any, ...]
"""A key below another place: (place, key), the document itself being ()."""


def _refuse_unplain(document: Any) -> None:
    """Raise UnreadableError if a document has what JSON of the API server cannot have."""
    left: list[tuple[Any, int, _Place]] = [(document, 0, ())]
    while left:
        value, depth, place = left.pop()
        problem = ""
        if isinstance(value, dict | list):
            if depth == MAX_DEPTH:
                problem = f"is in more than {MAX_DEPTH} levels"
            children = value.items() if isinstance(value, dict) else enumerate(value)
            left.extend((child, depth + 1, (place, key)) for key, child in children)
        elif isinstance(value, int) and not _LEAST <= value <= _MOST:
            problem = "is a number of more than 64 bits"
        elif isinstance(value, float) and not isfinite(value):
            problem = "is no finite number"
        if problem:
            raise UnreadableError(f"{_format_place(place)} {problem}")


def _format_place(place: _Place) -> str:
    keys: list[int | str] = []
    while place:
        place, key = place
        keys.append(key)
    return format_field(keys[:-9:-1]) if keys else "the document"


def _measure(node: yaml.Node, sizes: dict[int, int], most: int) -> int:
    """Count the nodes with aliases expanded; reject documents that expand too much."""
    if id(node) not in sizes:
        sizes[id(node)] = MAX_VALUES  # the size of an alias to itself
        children: Any = node.value if isinstance(node, yaml.CollectionNode) else ()
        if isinstance(node, yaml.MappingNode):
            children = chain.from_iterable(children)
        size = 1 + sum(_measure(child, sizes, most) for child in children)
        if size > most:
            raise yaml.constructor.ConstructorError(
                problem="its aliases expand to too many values", problem_mark=node.start_mark
            )
        sizes[id(node)] = size
    return sizes[id(node)]


class _ManifestLoader(UnicodeLoader):
    yaml_implicit_resolvers = {  # noqa: RUF012 - as yaml requires
        first: [(tag, pattern) for tag, pattern in resolvers if tag not in _REPLACED]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    yaml_constructors = {  # noqa: RUF012 - the same
        tag: construct
        for tag, construct in yaml.SafeLoader.yaml_constructors.items()
        if tag not in {f"tag:yaml.org,2002:{name}" for name in _NO_JSON}
    }

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._left = MAX_VALUES

    @override
    def get_data(self) -> Any:
        node = self.get_node()
        if node is not None:
            self._left -= _measure(node, {}, self._left)
        return self.construct_document(node)

    @override
    def construct_mapping(self, node: yaml.Node, deep: bool = False) -> dict[Hashable, Any]:
        if not isinstance(node, yaml.MappingNode):
            raise yaml.constructor.ConstructorError(
                problem="a mapping is expected", problem_mark=node.start_mark
            )
        seen = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    problem=f"duplicate key {cut(key.value)!r}", problem_mark=key.start_mark
                )
            seen.add(key.value)
        self.flatten_mapping(node)
        return {
            _to_text(self.construct_object(key, deep=True), key): self.construct_object(value, deep)
            for key, value in node.value
        }


def _to_text(key: Any, node: yaml.Node) -> str:
    """Return a key as kubectl writes it into JSON."""
    if isinstance(key, str):
        return key
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, int | float):
        return str(key)
    raise yaml.constructor.ConstructorError(
        problem="a key is no text", problem_mark=node.start_mark
    )


_ManifestLoader.add_implicit_resolver("tag:yaml.org,2002:int", _INT, list("-+0123456789"))
_ManifestLoader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789."))
