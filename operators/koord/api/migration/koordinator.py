"""From Koordinator, which needs only our gate, and the way back."""

from collections.abc import Mapping

from koord.api.keys import gang, operators
from koord.api.migration.documents import (
    MALFORMED,
    Document,
    Lost,
    Rewritten,
    malformed,
    name_of,
    unshared,
)
from koord.api.migration.table import Row, rows_of_keys
from koord.api.migration.wish import read_keys
from koord.api.migration.workloads import find_templates


def add_gates(original: Document) -> Document:
    """Add our gate to gangs of Koordinator's scheduler; nothing else of theirs changes."""
    document = unshared(original)
    for template in find_templates(document):
        pod, metadata = template.get("spec") or {}, template.get("metadata") or {}
        keys = {**(metadata.get("labels") or {}), **(metadata.get("annotations") or {})}
        is_gang = bool(keys.keys() & {gang.POD_GROUP, gang.LEGACY_NAME, gang.NAME})
        if is_gang and pod.get("schedulerName") == operators.SCHEDULER_NAME:
            gates = pod.setdefault("schedulingGates", [])
            if all(one["name"] != operators.PLACEMENT_GATE for one in gates):
                gates.append({"name": operators.PLACEMENT_GATE})
    return original if document == original else document


def to_koordinator(documents: list[Document]) -> list[Rewritten]:
    """Return the same objects without our additions: the way back."""
    rows = rows_of_keys(of_ours=True)
    return [_strip_or_leave(document, rows) for document in documents]


def _strip_or_leave(document: Document, rows: Mapping[str, Row]) -> Rewritten:
    try:
        return _strip(document, rows)
    except MALFORMED as error:
        return Rewritten([document], [malformed(document, error)])


def _strip(original: Document, rows: Mapping[str, Row]) -> Rewritten:
    document = unshared(original)
    lost: list[Lost] = []
    if document.get("kind") == "List":
        items = [_strip_or_leave(one, rows) for one in document.get("items") or ()]
        document["items"] = [new for item in items for new in item.documents]
        lost = [one for item in items for one in item.lost]
        return Rewritten([original if document == original else document], lost)
    where = name_of(document)

    def say(key: str, advice: str) -> None:
        lost.append(Lost(where, key, advice))

    templates = find_templates(document)
    for one in (document, *(template for template in templates if template is not document)):
        if isinstance(one.get("metadata"), dict):
            read_keys(one["metadata"], rows, say, prefixes={})
    for template in templates:
        pod = template.get("spec") or {}
        gates = pod.get("schedulingGates") or []
        kept = [one for one in gates if one.get("name") != operators.PLACEMENT_GATE]
        if kept != gates:
            pod["schedulerName"] = operators.SCHEDULER_NAME
            pod["schedulingGates"] = kept
            if not kept:
                del pod["schedulingGates"]
    return Rewritten([original if document == original else document], lost)
