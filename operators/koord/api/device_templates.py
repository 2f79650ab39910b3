"""The ConfigMap ``gpu-shared-resource-templates``: how NPUs of each model can be sliced.

Its entry ``data.yaml`` maps ``vendor-model`` to names of templates, and those to resources of one
card. A ConfigMap that cannot be used is reported, and none of it counts.
"""

from typing import Annotated, Final, TypeAlias

import yaml
from pydantic import Field, TypeAdapter

from koord.api.json_text import MAX_TEXT
from koord.api.parse import InvalidObject, Problem, cut, parse_value
from koord.api.resource import ResourceList
from koord.api.yaml_text import UnicodeLoader

NAME: Final = "gpu-shared-resource-templates"
NAMESPACE: Final = "koordinator-system"
KEY: Final = "data.yaml"

_Name: TypeAlias = Annotated[str, Field(min_length=1, max_length=63)]
_Templates: TypeAlias = dict[_Name, Annotated[dict[_Name, ResourceList], Field(max_length=64)]]
_ADAPTER: Final[TypeAdapter[_Templates]] = TypeAdapter(Annotated[_Templates, Field(max_length=256)])

Templates: TypeAlias = dict[str, dict[str, dict[str, int]]]
"""``vendor-model`` -> template -> amounts of one card, in bytes or pieces."""


def parse_templates(text: str) -> Templates | InvalidObject:
    """Read the text of ``data.yaml``; an empty text has no templates."""
    if len(text) > MAX_TEXT:
        return _refuse("", f"is longer than {MAX_TEXT} characters")
    try:
        value = yaml.load(text, _TemplateLoader)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        return _refuse(text, f"is not YAML: {' '.join(str(error).split())[:256]}")
    written = parse_value(_ADAPTER, {} if value is None else value, at=("data", KEY))
    if isinstance(written, InvalidObject):
        return written
    return {
        model: {
            name: {key: quantity.whole for key, quantity in amounts.items() if quantity.nano}
            for name, amounts in templates.items()
        }
        for model, templates in written.items()
    }


def _refuse(value: str, message: str) -> InvalidObject:
    return InvalidObject((Problem(f"data[{KEY}]", cut(value), message),))


class _TemplateLoader(UnicodeLoader):
    """Refuses keys that are given twice, of which all but one would be lost, and references."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("references (*) are not allowed")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[object, object]:  # noqa: FBT001, FBT002 - as its base
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if len(set(keys)) < len(keys):
            twice = next(key for key in keys if keys.count(key) > 1)
            raise yaml.YAMLError(f'"{twice}" is given twice')
        return super().construct_mapping(node, deep)
