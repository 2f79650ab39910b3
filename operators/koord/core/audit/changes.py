"""What was changed of a unit or a quota, for records: names of settings with values as short text.

A table says which settings count. Knows no clock and no record, and nothing of who has changed it:
an object does not say.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, Final, NamedTuple

from koord.core.audit.records import FieldChange, SpecChanged
from koord.core.model.gangs import GangSpec, SubGroupTree
from koord.core.model.text import cut
from koord.core.model.topology_constraint import TopologyConstraint
from koord.core.model.units import format_limit
from koord.core.quota.catalog import QuotaCatalog
from koord.core.quota.model import QuotaSpec

MOST_CHANGES: Final = 16
_MOST_TEXT: Final = 128


class UnitSettings(NamedTuple):
    """What decides about a unit besides its pods. None of priority and quota: not known."""

    spec: GangSpec | None
    priority: int | None
    quota: str | None


def compare_units(before: UnitSettings, after: UnitSettings) -> tuple[FieldChange, ...]:
    """Return the settings that differ; of what is not known nothing is said."""
    pairs: list[tuple[str, object, object]] = []
    if before.spec is not None and after.spec is not None:
        pairs += [(name, read(before.spec), read(after.spec)) for name, read in _OF_GANGS.items()]
    if None not in {before.priority, after.priority}:
        pairs.append(("priority", before.priority, after.priority))
    if None not in {before.quota, after.quota}:
        pairs.append(("quota", before.quota, after.quota))
    return _write_changes(pairs)


def compare_quotas(before: QuotaSpec, after: QuotaSpec) -> tuple[FieldChange, ...]:
    """Return the settings of a quota that differ, amounts one by one."""
    pairs: list[tuple[str, object, object]] = [
        (name, read(before), read(after)) for name, read in _OF_QUOTAS.items()
    ]
    for name in ("min", "max"):
        pairs += _pair_amounts(name, getattr(before, name), getattr(after, name))
    return _write_changes(pairs)


class QuotaChanges:
    """Compares the quotas of a catalog with what they were at the last look."""

    def __init__(self) -> None:
        self._edits = -1
        self._specs: Mapping[str, QuotaSpec] = {}

    def has_news(self, catalog: QuotaCatalog) -> bool:
        return catalog.edits != self._edits

    def take(self, catalog: QuotaCatalog) -> Iterator[SpecChanged]:
        """Yield what was changed of each quota; one that comes or goes was not changed."""
        before, self._specs = self._specs, dict(catalog.written)
        self._edits = catalog.edits
        for key, spec in self._specs.items():
            old = before.get(key)
            changes = () if old is None or old is spec else compare_quotas(old, spec)
            if changes:
                yield SpecChanged(changes, spec.name)


def _pair_amounts(
    name: str, before: Mapping[str, int], after: Mapping[str, int]
) -> Iterator[tuple[str, object, object]]:
    for key in sorted({*before, *after}):
        was, then = (
            format_limit(key, each[key]) if key in each else "" for each in (before, after)
        )
        yield f"{name}.{key}", was, then


def _write_changes(pairs: Iterable[tuple[str, object, object]]) -> tuple[FieldChange, ...]:
    changes = [
        FieldChange(cut(name, _MOST_TEXT), _write(before), _write(after))
        for name, before, after in pairs
        if before != after
    ]
    return tuple(changes[:MOST_CHANGES])


def _write(value: object) -> str:
    match value:
        case None:
            text = ""
        case bool():
            text = str(value).lower()
        case Enum():
            text = str(value.value)
        case TopologyConstraint():
            text = ", ".join(f"{each.layer} ({each.strategy.value})" for each in value.layers)
        case SubGroupTree():
            text = ", ".join(f"{each.name} ({each.min_member})" for each in value.groups)
        case tuple():
            text = ", ".join(map(str, value))
        case _:
            text = str(value)
    return cut(text, _MOST_TEXT)


_OF_GANGS: Final[Mapping[str, Callable[[GangSpec], Any]]] = {
    "minMember": lambda spec: spec.min_member,
    "mode": lambda spec: spec.mode,
    "matchPolicy": lambda spec: spec.match_policy,
    "waitSeconds": lambda spec: spec.wait_seconds,
    "group": lambda spec: spec.group,
    "topology": lambda spec: spec.topology,
    "subGroups": lambda spec: spec.sub_groups,
    "held": lambda spec: spec.is_held,
    "priority": lambda spec: spec.most_priority,
    "retry": lambda spec: spec.retry,
    "maxRunTime": lambda spec: spec.run.max_run_time,
    "expectedRunTime": lambda spec: spec.run.expected_run_time,
}
_OF_QUOTAS: Final[Mapping[str, Callable[[QuotaSpec], Any]]] = {
    "parent": lambda spec: spec.parent,
    "isParent": lambda spec: spec.is_parent,
    "allowLentResource": lambda spec: spec.lends,
    "maxPriority": lambda spec: spec.max_priority,
}
