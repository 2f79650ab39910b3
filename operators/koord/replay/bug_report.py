"""What a bug report holds besides the snapshot: records, metrics and settings without names.

What stays is listed, and all other texts are replaced: names of objects that do not exist any more
are in no snapshot, and a list of what is to be hidden would lack some. A name that was replaced in
the snapshot is replaced by the same here.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from koord.replay.anonymise import is_well_known
from koord.replay.vocabulary import find_vocabulary

MOST_RECORDS: Final = 500
_CODES: Final = ("kind", "class", "code")
_FIELDS: Final = (
    *("term", "seq", "at", "mono", "attempt", "position", "of", "cycle", "cycleMicros"),
    *("repeats", "firstAt", "lastAt", "releases", "binds", "notBound", "leftToOthers", "tookMs"),
    *("policy", "victims", "outcome", "count", "left", "from", "to", "ahead", "created"),
    *("complete", "due", "since"),
)
"""Fields of records that are numbers, times, or words of ours."""
_LABEL: Final = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
CODED_LABELS: Final = frozenset(
    {"outcome", "type", "unit", "phase", "field", "operation", "reason", "is_parent", "size"}
    | {"state", "class", "certainty", "cause", "size_class", "rank", "level", "free", "source"}
    | {"minor", "xid", "loop", "result", "version", "le", "quantile", "generation"}
    | {"implementation", "major", "patchlevel", "vdeviceid", "deviceidx", "zone"}
    | {"route", "code", "about", "answer", "why"}
)
"""Labels of series whose values are of a closed set, or numbers."""
_PLAIN: Final = re.compile(
    r"[-+]?[0-9.]{1,20}[A-Za-z%]{0,3}|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{8,16}Z"
)
"""Numbers, amounts, durations and times."""
_FIELD: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*")


@dataclass(frozen=True, slots=True)
class NameRemover:
    """Replaces the texts that may be names.

    ``names`` were replaced in the snapshot, ``kept`` have stayed there.
    """

    names: frozenset[str]
    kept: frozenset[str]
    replace_text: Callable[[str], str]

    def clean(self, text: str) -> str:
        """Return a text if it is known to be no name, and what stands for it if not."""
        return text if self._stays(text) else self.replace_text(text)

    def clean_key(self, text: str) -> str:
        """Return the key of an object of JSON: names of fields stay."""
        is_field = _FIELD.fullmatch(text) is not None and text not in self.names
        return text if is_field else self.clean(text)

    def _stays(self, text: str) -> bool:
        if text in self.kept or text in self.names:
            return text in self.kept
        is_plain = not text or _PLAIN.fullmatch(text) is not None
        return is_plain or is_well_known(text) or text in find_vocabulary()


def strip_records(
    records: Sequence[Mapping[str, Any]], remover: NameRemover
) -> Iterator[dict[str, Any]]:
    """Yield the last records without texts; units have the names of the anonymised snapshot."""
    for record in records[-MOST_RECORDS:]:
        stripped = {name: record[name] for name in _CODES if name in record}
        stripped |= {
            name: strip_settings(record[name], remover) for name in _FIELDS if name in record
        }
        unit = record.get("unit")
        if isinstance(unit, Mapping):
            names = [remover.replace_text(str(name)) for name in unit.get("names") or ()]
            counts = {name: unit.get(name) for name in ("pods", "required")}
            stripped["unit"] = {"names": names, **counts}
        yield stripped


def strip_metrics(text: str, remover: NameRemover) -> str:
    """Return metrics without names: what labels say that is no code of ours is replaced."""

    def replace_label(match: re.Match[str]) -> str:
        label, value = match.groups()
        return f'{label}="{value if label in CODED_LABELS else remover.clean(value)}"'

    return _LABEL.sub(replace_label, text)


def strip_settings(value: Any, remover: NameRemover) -> Any:
    """Return what JSON can say without names: fields, numbers and words of ours stay."""
    if isinstance(value, str):
        return remover.clean(value)
    if isinstance(value, Mapping):
        return {
            remover.clean_key(key): strip_settings(part, remover) for key, part in value.items()
        }
    if isinstance(value, list | tuple):
        return [strip_settings(part, remover) for part in value]
    return value
