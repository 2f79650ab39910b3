"""Reads YAML files like kubectl.

PyYAML follows YAML 1.1 literally: ``0000:09:00.0`` is a base-60 number, dates become Python
objects, and the second of two equal keys wins. kubectl does none of this.
"""

import re
from collections.abc import Hashable, Iterator
from itertools import chain
from typing import Any, Final

import yaml
from typing_extensions import override

MAX_FILE_BYTES: Final = 4 * 1024 * 1024
MAX_NODES: Final = 1_000_000
"""Values in one document with aliases expanded."""

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


class UnreadableError(ValueError):
    """The text is not YAML that kubectl accepts; the message says where."""


def read_documents(text: str) -> Iterator[Any]:
    """Yield the documents of a YAML text, without empty ones. Raises UnreadableError."""
    if len(text.encode()) > MAX_FILE_BYTES:
        raise UnreadableError(f"is larger than {MAX_FILE_BYTES} bytes")
    try:
        for document in yaml.load_all(text, Loader=_Loader):
            if document is not None:
                yield document
    except yaml.YAMLError as error:
        raise UnreadableError(_describe(error)) from error
    except (RecursionError, ValueError) as error:
        raise UnreadableError(f"is not YAML: {error}") from error


def _describe(error: yaml.YAMLError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 1}: {error.problem or error.context}"
    return str(error)


def _measure(node: yaml.Node, sizes: dict[int, int]) -> int:
    """Count the nodes with aliases expanded; reject documents that expand too much."""
    if id(node) not in sizes:
        sizes[id(node)] = MAX_NODES  # the size of an alias to itself
        children: Any = node.value if isinstance(node, yaml.CollectionNode) else ()
        if isinstance(node, yaml.MappingNode):
            children = chain.from_iterable(children)
        size = 1 + sum(_measure(child, sizes) for child in children)
        if size > MAX_NODES:
            raise yaml.constructor.ConstructorError(
                problem="its aliases expand to too many values", problem_mark=node.start_mark
            )
        sizes[id(node)] = size
    return sizes[id(node)]


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers = {  # noqa: RUF012 - as yaml requires
        first: [(tag, pattern) for tag, pattern in resolvers if tag not in _REPLACED]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    @override
    def get_data(self) -> Any:
        node = self.get_node()
        if node is not None:
            _measure(node, {})
        return self.construct_document(node)

    @override
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    problem=f"duplicate key {key.value!r}", problem_mark=key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver("tag:yaml.org,2002:int", _INT, list("-+0123456789"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789."))
