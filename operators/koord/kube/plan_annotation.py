"""The plan annotation: what the commit point leaves on a released pod.

It is written and read here only. The values are those of the core; what they decide is not known.
"""

from functools import lru_cache
from typing import Final

import msgspec

from koord.api.gang import encode_bind_record
from koord.api.keys import operators
from koord.core.gang.record import make_bind_record
from koord.core.plan import Assignment, Placement
from koord.core.pods import RecordedPlan

MAX_TEXT: Final = 64 * 1024
"""Longer annotations are not ours; a group id is some dozens of names at most."""


class _Note(msgspec.Struct, omit_defaults=True, gc=False):
    node: str
    plan: str
    group: str = ""
    members: int = 1
    strength: int = 0
    gap: str | msgspec.UnsetType = msgspec.UNSET
    youngest: int = 0


_decoder = msgspec.json.Decoder(_Note)


def encode_annotations(assignment: Assignment, placement: Placement) -> dict[str, str]:
    """Return all annotations that go on a pod with its release and again with its binding."""
    record = make_bind_record(assignment.pod, placement.group, placement.uids)
    members = record.member_count if record is not None else 1
    gang = assignment.pod.gang
    strength = placement.strengths.get(gang.key, 0) if gang is not None else 0
    note = _Note(assignment.node, placement.plan_id, placement.group, members, strength)
    note.gap = placement.gap or msgspec.UNSET
    if record is not None:
        note.youngest = int(placement.youngest)
    annotations = {operators.PLAN: msgspec.json.encode(note).decode()}
    if record is not None:
        annotations |= encode_bind_record(record.group, record.member_count)
    return annotations


@lru_cache(maxsize=4096)
def decode_plan(text: str) -> RecordedPlan | None:
    """Read a plan annotation; None for what we cannot have written."""
    if len(text) > MAX_TEXT:
        return None
    try:
        note = _decoder.decode(text)
    except msgspec.DecodeError:
        return None
    if not note.node or not note.plan or note.members < 1 or note.strength < 0:
        return None
    return RecordedPlan(
        note.node,
        note.plan,
        note.group,
        note.members,
        note.strength,
        note.gap or "",
        float(note.youngest),
    )
