"""From Koordinator, which needs only our gate, and the way back."""

import json
from collections.abc import Mapping
from typing import Any, Final

from koord.api.keys import gang, operators
from koord.api.workloads import Document, find_templates
from koord_migrate.documents import (
    MALFORMED,
    Rewritten,
    UntranslatedKey,
    malformed,
    name_of,
    unshared,
)
from koord_migrate.queue_settings import BY_HAND, KOORD_QUEUE_LABEL, policy_of
from koord_migrate.requested_settings import Say, read_keys
from koord_migrate.table import KeyTranslation, Peer, rows_of_keys

_WITH_ALL: Final = '["*"]'
"""A quota that every pod may name, as there."""


def is_member(metadata: Document) -> bool:
    """Whether labels or annotations name a gang."""
    keys = {**(metadata.get("labels") or {}), **(metadata.get("annotations") or {})}
    return bool(keys.keys() & {gang.POD_GROUP, gang.LEGACY_NAME, gang.NAME})


def add_gates(original: Document) -> Document:
    """Add our gate to gangs of Koordinator's scheduler; nothing else of theirs changes."""
    document = unshared(original)
    for template in find_templates(document):
        pod, metadata = template.get("spec") or {}, template.get("metadata") or {}
        if is_member(metadata) and pod.get("schedulerName") == operators.SCHEDULER_NAME:
            gates = pod.setdefault("schedulingGates", [])
            if all(gate["name"] != operators.PLACEMENT_GATE for gate in gates):
                gates.append({"name": operators.PLACEMENT_GATE})
    return original if document == original else document


def add_policy(original: Document, say: Say) -> Document:
    """Say in our words in which order the queue of a quota of Koordinator starts its units."""
    metadata = original.get("metadata") or {}
    text = (metadata.get("labels") or {}).get(KOORD_QUEUE_LABEL)
    if text is None or operators.QUEUE in (metadata.get("annotations") or {}):
        return original
    try:
        policy = policy_of(text)
    except ValueError:
        say(KOORD_QUEUE_LABEL, f"{text!r}: {BY_HAND}")
        return original
    document: Document = unshared(original)
    annotations = document["metadata"].get("annotations") or {}
    settings = {operators.QUEUE: json.dumps({"policy": policy})}
    document["metadata"]["annotations"] = annotations | settings
    return document


def to_koordinator(documents: list[Document]) -> list[Rewritten]:
    """Return the same objects without our additions: the way back."""
    rows = rows_of_keys(of_ours=True)
    return [_strip_or_leave(document, rows) for document in documents]


def _strip_or_leave(document: Document, rows: Mapping[str, KeyTranslation]) -> Rewritten:
    try:
        return _strip(document, rows)
    except MALFORMED as error:
        return Rewritten([document], [malformed(document, error)])


def _strip(original: Document, rows: Mapping[str, KeyTranslation]) -> Rewritten:
    document = unshared(original)
    lost: list[UntranslatedKey] = []
    if document.get("kind") == "List":
        items = [_strip_or_leave(item, rows) for item in document.get("items") or ()]
        document["items"] = [new for item in items for new in item.documents]
        lost = [lost_member for item in items for lost_member in item.lost]
        return Rewritten([original if document == original else document], lost)
    where = name_of(document)

    def say(key: str, advice: str) -> None:
        lost.append(UntranslatedKey(where, key, advice))

    templates = find_templates(document)
    for part in (document, *(template for template in templates if template is not document)):
        if isinstance(part.get("metadata"), dict):
            _strip_metadata(part["metadata"], rows, say)
    for template in templates:
        _strip_pod(template)
    if document.get("kind") == "ClusterNetworkTopology" and not where.endswith("/default"):
        say("metadata.name", "it knows one topology, `default`: rename this one, or leave it out")
    return Rewritten([original if document == original else document], lost)


def _strip_metadata(metadata: Document, rows: Mapping[str, KeyTranslation], say: Say) -> None:
    annotations = metadata.get("annotations")
    if isinstance(annotations, dict) and annotations.get(operators.SHARED_WITH) == _WITH_ALL:
        del annotations[operators.SHARED_WITH]
    read_keys(metadata, rows, say, prefixes={operators.PREFIX: Peer.OURS})
    _remove(metadata, "finalizers", operators.IN_USE)


def _strip_pod(template: Document) -> None:
    """Name Koordinator's scheduler in place of our gate, which a policy may have added as well."""
    pod = template.get("spec") or {}
    gates = [gate.get("name") for gate in pod.get("schedulingGates") or ()]
    is_ours = operators.PLACEMENT_GATE in gates
    if is_ours or (is_member(template.get("metadata") or {}) and "schedulerName" not in pod):
        pod["schedulerName"] = operators.SCHEDULER_NAME
    _remove(pod, "schedulingGates", {"name": operators.PLACEMENT_GATE})


def _remove(holder: Document, name: str, entry: Any) -> None:
    """Remove an entry from a list, and the list if nothing else is in it."""
    entries = holder.get(name) or []
    if entry in entries:
        holder[name] = [other for other in entries if other != entry]
        if not holder[name]:
            del holder[name]
