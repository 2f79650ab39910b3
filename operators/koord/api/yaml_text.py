"""Decodes YAML, of files and in ConfigMaps, to text that is Unicode: the counterpart of json_text.

YAML has escapes for single halves of surrogate pairs, and JSON, which is YAML too, writes other
characters as pairs of them. Pairs are joined; a half is refused, as by kubectl.
"""

from typing import Any

import yaml
from typing_extensions import override

from koord.plain_text import find_half_pair


class UnicodeLoader(yaml.SafeLoader):
    """The base of all loaders; raises a ``YAMLError``."""

    @override
    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> Any:
        value = super().construct_scalar(node)
        if not isinstance(value, str) or not find_half_pair(value):
            return value
        try:
            return value.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError as error:
            raise yaml.constructor.ConstructorError(
                problem=f"{find_half_pair(value)} is only half of a surrogate pair",
                problem_mark=node.start_mark,
            ) from error


def load_yaml(text: bytes | str) -> Any:
    """Decode one document. Raises ``YAMLError``, UnicodeDecodeError or RecursionError."""
    return yaml.load(text, UnicodeLoader)  # noqa: S506 - a SafeLoader
