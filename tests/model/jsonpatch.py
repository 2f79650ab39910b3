"""JSON patch and merge patch as the API server applies them, as far as the tests send them.

``test`` with null passes for a missing field; any other operation that does not apply fails.
"""

from typing import Any


class PatchFailed(Exception):  # noqa: N818 - the message is the finding
    """The patch does not apply to the object."""


def apply_json_patch(document: Any, operations: list[dict[str, Any]]) -> None:
    """Change ``document`` in place; after PatchFailed its content is undefined."""
    for operation in operations:
        parents = [_unescape(part) for part in operation["path"].split("/")[1:]]
        last = parents.pop()
        target = document
        is_test_for_nothing = operation["op"] == "test" and operation["value"] is None
        try:
            for part in parents:
                target = target[int(part)] if isinstance(target, list) else target[part]
            _apply(operation, target, last)
        except (KeyError, IndexError, ValueError, TypeError) as error:
            if not is_test_for_nothing:
                raise PatchFailed(f"{operation['path']}: {error!r}") from error


def _apply(operation: dict[str, Any], target: Any, last: str) -> None:
    kind, value = operation["op"], operation.get("value")
    if isinstance(target, list):
        at = len(target) if last == "-" else int(last)
        if kind == "add":
            target.insert(at, value)
        elif kind == "remove":
            del target[at]
        elif target[at] != value:
            raise PatchFailed(f"test of {operation['path']} failed")
    elif kind == "add":
        target[last] = value
    elif kind == "remove":
        del target[last]
    elif target.get(last) != value:
        raise PatchFailed(f"test of {operation['path']} failed")


def _unescape(part: str) -> str:
    return part.replace("~1", "/").replace("~0", "~")


def merge(document: dict[str, Any], patch: dict[str, Any]) -> None:
    """Apply a merge patch in place."""
    for key, value in patch.items():
        if value is None:
            document.pop(key, None)
        elif isinstance(value, dict):
            if not isinstance(document.get(key), dict):
                document[key] = {}
            merge(document[key], value)
        else:
            document[key] = value


def merge_conditions(present: list[Any], said: list[Any]) -> list[Any]:
    """Merge lists of conditions by type; those that are not mentioned stay."""
    merged = {one["type"]: one for one in present}
    for one in said:
        merged[one["type"]] = {**merged.get(one["type"], {}), **one}
    return list(merged.values())
