"""What of a large answer changed, so that a stream tells that alone.

Of a map of thousands of nodes those are some nodes. Knows no answer: values are documents.
"""

from collections.abc import Mapping
from typing import Any, Final

_LONG: Final = 100
"""Items: a list that is shorter is told as a whole."""


def find_patch(before: Any, after: Any) -> dict[str, Any] | None:
    """Return what turns one object into another one; None if to tell it as a whole is as good.

    ``fields`` has the fields with another value, by name; ``items`` the items of long lists with
    another value, by the name of the field and then by number from 0. Numbers are texts, as the
    keys of JSON are.
    """
    if not isinstance(before, Mapping) or not isinstance(after, Mapping):
        return None
    if before.keys() != after.keys():
        return None
    changed = {name: value for name, value in after.items() if before[name] != value}
    long = {name for name, value in changed.items() if _is_long(before[name], value)}
    items = {name: _find_changed(before[name], changed[name]) for name in long}
    if not items or any(2 * len(items[name]) > len(changed[name]) for name in items):
        return None
    fields = {name: value for name, value in changed.items() if name not in items}
    return {"fields": fields, "items": items}


def _is_long(before: Any, after: Any) -> bool:
    is_list = isinstance(before, list | tuple) and isinstance(after, list | tuple)
    return is_list and len(before) == len(after) >= _LONG


def _find_changed(before: list[Any], after: list[Any]) -> dict[str, Any]:
    pairs = enumerate(zip(before, after, strict=True))
    return {str(at): value for at, (old, value) in pairs if old != value}
