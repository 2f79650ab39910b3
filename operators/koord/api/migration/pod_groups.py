"""PodGroups of others: what they ask for."""

from copy import deepcopy
from typing import Any, Final

from koord.api.migration.documents import Document
from koord.api.migration.table import Action, rows_of, rows_of_keys
from koord.api.migration.wish import UNKNOWN, Say, Wish, layer_of, read_keys, take

POD_GROUPS: Final = ("scheduling.x-k8s.io", "scheduling.volcano.sh", "scheduling.run.ai")
"""Their API groups."""
_LEVELS: Final = {
    "requiredTopologyLevel": "MustGather",
    "preferredTopologyLevel": "PreferGather",
}
_SUB_GROUP_FIELDS: Final = {
    "name": "name",
    "parent": "parent",
    "minMember": "minMember",
    "minSubGroup": "minSubGroups",
}
_CONSTRAINT: Final = "topologyConstraint"


def read_pod_group(document: Document, say: Say) -> Wish:
    """Return what a PodGroup asks for, with its labels and annotations."""
    group = str(document["apiVersion"]).partition("/")[0]
    rows = rows_of(f"PodGroup.{group}")
    wish = read_keys(deepcopy(document["metadata"]), rows_of_keys(), say)
    for key, value in (document.get("spec") or {}).items():
        row = rows.get(key)
        if row is None:
            say(f"spec.{key}", UNKNOWN)
        elif row.action is Action.TASK_MINIMUMS:
            wish.sub_groups = [{"name": k, "minMember": n} for k, n in value.items()]
        elif row.action is Action.SUB_GROUPS:
            wish.sub_groups = [_read_sub_group(sub_group, say) for sub_group in value]
        elif row.action is Action.TOPOLOGY:
            wish.gather = _read_levels(value)
        else:
            take(wish, row._replace(key=f"spec.{key}"), value, say)
    return wish


def _read_sub_group(group: Document, say: Say) -> Document:
    fields = _SUB_GROUP_FIELDS.items()
    made = {ours: group[theirs] for theirs, ours in fields if group.get(theirs) is not None}
    for key in sorted(group.keys() - _SUB_GROUP_FIELDS.keys() - {_CONSTRAINT}):
        say(f"spec.subGroups.{key}", UNKNOWN)
    for level in _read_levels(group.get(_CONSTRAINT) or {}):
        if level["strategy"] == "MustGather":
            made["layer"] = level["layer"]
        else:
            say(
                f"spec.subGroups.{_CONSTRAINT}",
                "a sub-group has required layers only: require it, or do without",
            )
    return made


def _read_levels(constraint: Any) -> list[Document]:
    return [
        {"layer": layer_of(constraint[key]), "strategy": strategy}
        for key, strategy in _LEVELS.items()
        if constraint.get(key)
    ]
