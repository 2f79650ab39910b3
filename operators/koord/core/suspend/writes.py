"""What is written to a Job, and read back: when it is resumed, has started, or has not.

Every write depends on the Job as it was seen, so that it can be repeated and is undone by nobody.
"""

import json
from collections import Counter
from collections.abc import Iterable
from typing import Final

from koord.core.model.plan import Assignment, ObjectWrite
from koord.core.model.vain_starts import count_failure
from koord.core.suspend.model import HeldRoom, QueuedJob

HELD: Final = "operators.koordinator.sh/held-room"
"""Job annotation (result), JSON: since when and where room is held for its pods."""
HELD_SIGNATURE: Final = "operators.koordinator.sh/held-room-signature"
"""Job annotation (result): proves that the operators wrote the room, and for this Job."""
FAILURES: Final = "operators.koordinator.sh/admission-failures"
"""Job annotation (result), JSON: how often it was resumed in vain, and when the last time."""


def settle(job: QueuedJob) -> ObjectWrite:
    """Return the write that ends the hold of a Job that has started."""
    return ObjectWrite(job.path, {at(key): None for key, _ in job.recorded}, as_seen(job))


def suspend_again(job: QueuedJob, now: float) -> ObjectWrite:
    """Return the write that suspends a Job that was resumed in vain, and counts that."""
    failures = count_failure(job.failures, now)
    text = json.dumps({"count": failures.count, "at": int(now)}, separators=(",", ":"))
    patch = {job.field: True, at(HELD): None, at(HELD_SIGNATURE): None, at(FAILURES): text}
    return ObjectWrite(job.path, patch, {**as_seen(job), job.field: False})


def resume(job: QueuedJob, text: str, signature: str) -> ObjectWrite:
    """Return the write that resumes a Job as it was planned, and records where room is held."""
    patch = {job.field: False, at(HELD): text, at(HELD_SIGNATURE): signature}
    return ObjectWrite(job.path, patch, {**as_seen(job), job.field: True})


def as_seen(job: QueuedJob) -> dict[str, object]:
    """Return what must still be true of a Job for a write to it: the object and its spec."""
    return {
        **{at(key): text for key, text in job.recorded},
        "/metadata/uid": job.uid,
        "/metadata/generation": job.generation,
    }


def at(annotation: str) -> str:
    """Return the JSON pointer of an annotation."""
    return f"/metadata/annotations/{annotation.replace('~', '~0').replace('/', '~1')}"


def write_held(now: float, ended: int, assignments: Iterable[Assignment]) -> str:
    """Return as JSON where room is held from now on."""
    sets: dict[int, Counter[str]] = {}
    for assignment in assignments:
        number = int(assignment.pod.uid.split("/")[1])
        sets.setdefault(number, Counter())[assignment.node] += 1
    nodes = [dict(sorted(sets.get(at, Counter()).items())) for at in range(max(sets) + 1)]
    return json.dumps({"at": int(now), "ended": ended, "nodes": nodes}, separators=(",", ":"))


def read_held(value: object) -> HeldRoom | None:
    """Return the record that JSON says; None if it says none."""
    if not isinstance(value, dict) or not isinstance(value.get("nodes"), list):
        return None
    places = [
        (at, str(node), count)
        for at, nodes in enumerate(value["nodes"])
        if isinstance(nodes, dict)
        for node, count in sorted(nodes.items())
        if isinstance(count, int) and count > 0
    ]
    moment, ended = value.get("at"), value.get("ended", 0)
    if not isinstance(moment, int) or not isinstance(ended, int):
        return None
    return HeldRoom(float(moment), tuple(places), ended)
