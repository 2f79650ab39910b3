"""Server-side apply of a status: owners of fields, and removal of fields without an owner.

Forced, as the operators do it. Conditions are merged by type, field by field; other lists count as
one value. What is said here is checked against the real API server by ``test_contract``.
"""

from dataclasses import dataclass, field
from typing import Any

from tests.model.store import Obj

Path = tuple[str, ...]
_REQUIRED = {"type", "status", "reason", "message", "lastTransitionTime"}


@dataclass(slots=True)
class Applied:
    """The owners of the status fields of one object."""

    fields: dict[str, set[Path]] = field(default_factory=dict)
    """Manager -> the fields that it owns; none, if it applied an empty status."""

    def apply(self, status: Obj, manager: str, said: Obj) -> Obj | None:
        """Return the status that results; None if it would be invalid, and nothing has changed."""
        values, wanted = _flatten(status), _flatten(said)
        taken = {path for path, value in wanted.items() if values.get(path) != value}
        fields = {name: owned - taken for name, owned in self.fields.items()}
        released = fields.pop(manager, set()) - wanted.keys()
        fields = {name: owned for name, owned in fields.items() if owned or not self.fields[name]}
        gone = {path for path in released if not any(path in owned for owned in fields.values())}
        result = _unflatten({p: value for p, value in (values | wanted).items() if p not in gone})
        if gone and not result:
            return None  # the server would write null, which is no object
        if not all(one.keys() >= _REQUIRED for one in result.get("conditions", ())):
            return None
        self.fields = {**fields, manager: set(wanted)}
        return result

    def describe(self) -> list[Obj]:
        """Return ``metadata.managedFields``."""
        owned = sorted(self.fields.items())
        return [{"manager": name, "fields": sorted(map(".".join, paths))} for name, paths in owned]


def _flatten(value: Obj, path: Path = ()) -> dict[Path, Any]:
    fields: dict[Path, Any] = {}
    for key, part in value.items():
        if key == "conditions" and not path:
            for one in part:
                fields |= _flatten(one, (key, one["type"]))
        elif isinstance(part, dict):
            fields |= _flatten(part, (*path, key))
        else:
            fields[*path, key] = part
    return fields


def _unflatten(fields: dict[Path, Any]) -> Obj:
    result: Obj = {}
    conditions: dict[str, Obj] = {}
    for path, value in fields.items():
        if path[0] == "conditions":
            target = conditions.setdefault(path[1], {})
        else:
            target = result
            for part in path[:-1]:
                target = target.setdefault(part, {})
        target[path[-1]] = value
    return {**result, **({"conditions": list(conditions.values())} if conditions else {})}
