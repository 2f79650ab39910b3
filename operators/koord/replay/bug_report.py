"""What a bug report holds besides the snapshot: records and metrics without names.

Of records those fields stay that are numbers, codes or times; texts are for people, and quote
names. A name that was replaced in the snapshot is replaced by the same here.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

MOST_RECORDS: Final = 500
_NUMBERS: Final = (
    *("term", "seq", "at", "mono", "kind", "class", "code", "attempt", "position", "of", "cycle"),
    *("cycleMicros", "repeats", "firstAt", "lastAt", "planId", "releases", "binds", "notBound"),
    *("leftToOthers", "tookMs", "policy", "victims", "outcome", "count", "left", "from", "to"),
    *("ahead", "created", "complete", "due", "since"),
)
"""Fields of records in which no name can be."""
_LABEL: Final = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')
_NAMES: Final = frozenset({"quota", "namespace", "node", "queue", "tree", "pod", "gang", "name"})
"""Labels of series whose values are names."""


def strip_records(
    records: Sequence[Mapping[str, Any]], replace_text: Callable[[str], str]
) -> Iterator[dict[str, Any]]:
    """Yield the last records without texts; units have the names of the anonymised snapshot."""
    for record in records[-MOST_RECORDS:]:
        stripped = {name: record[name] for name in _NUMBERS if name in record}
        unit = record.get("unit")
        if isinstance(unit, Mapping):
            names = [replace_text(str(name)) for name in unit.get("names") or ()]
            counts = {name: unit.get(name) for name in ("pods", "required")}
            stripped["unit"] = {"names": names, **counts}
        yield stripped


def strip_metrics(
    text: str, replace_text: Callable[[str], str], replace_name: Callable[[str], str]
) -> str:
    """Return metrics without names: some labels have nothing else, others may have some."""

    def replace_label(match: re.Match[str]) -> str:
        label, value = match.groups()
        return f'{label}="{(replace_text if label in _NAMES else replace_name)(value)}"'

    return _LABEL.sub(replace_label, text)


def strip_settings(value: Any, replace_name: Callable[[str], str]) -> Any:
    """Return settings with the names replaced that are in them."""
    if isinstance(value, str):
        return replace_name(value)
    if isinstance(value, Mapping):
        return {key: strip_settings(part, replace_name) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [strip_settings(part, replace_name) for part in value]
    return value
