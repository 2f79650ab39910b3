"""What evictions write on pods: where a preemptor goes, and what a victim is told.

The owner of a pod can write annotations. So a nomination is signed, with another purpose than a
plan: neither can be taken for the other. Why a pod is preempted counts only with its condition,
which its owner cannot write, and evicts nobody but that pod.
"""

from datetime import datetime

import msgspec

from koord.api.keys import operators
from koord.api.keys.preemption import SOFT_EVICTION
from koord.caches import cached_by_text
from koord.core.model.pods import Nominated, PreemptedBy
from koord.core.model.text import format_time
from koord.kube.decode import MALFORMED
from koord.kube.plan_keys import PlanKeys, PlanVerifier, Trust

MAX_TEXT = 64 * 1024
_PURPOSE = "nomination\0"


class _Nomination(msgspec.Struct, gc=False):
    node: str
    plan: str
    unit: str
    pods: int
    since: float = 0.0


class _PreemptedBy(msgspec.Struct, gc=False):
    plan: str
    preemptor: str
    pod: str


class _SoftEviction(msgspec.Struct, gc=False):
    deadline: datetime


_deadlines = msgspec.json.Decoder(_SoftEviction)
_nominations = msgspec.json.Decoder(_Nomination)
_victims = msgspec.json.Decoder(_PreemptedBy)


def encode_nomination(uid: str, nominated: Nominated, keys: PlanKeys) -> dict[str, str]:
    """Return the annotations that nominate a pod."""
    record = _Nomination(
        nominated.node, nominated.plan_id, nominated.unit, nominated.pods, nominated.since
    )
    text = msgspec.json.encode(record).decode()
    signature = keys.sign(uid, _PURPOSE + text)
    return {operators.NOMINATION: text, operators.NOMINATION_SIGNATURE: signature}


def read_nomination(uid: str, text: str, signature: str, plans: PlanVerifier) -> Nominated | None:
    """Return the nomination of a pod; None if we have not written it for this pod."""
    if not text or not signature or len(text) > MAX_TEXT:
        return None
    if plans.judge(uid, _PURPOSE + text, signature) is Trust.NONE:
        return None
    return _decode_nomination(text)


def encode_preempted_by(by: PreemptedBy) -> dict[str, str]:
    """Return the annotation of a victim."""
    record = _PreemptedBy(by.plan_id, by.preemptor, by.pod)
    return {operators.PREEMPTED_BY: msgspec.json.encode(record).decode()}


def encode_soft_eviction(reason: str, now: float, seconds: float | None = None) -> dict[str, str]:
    """Return the annotation that asks a pod to end by itself, with the fields of Koordinator.

    ``deadline`` is ours, for victims: Koordinator leaves open when a pod is evicted.
    """
    deadline = {} if seconds is None else {"deadline": format_time(now + seconds)}
    record = {
        "timestamp": format_time(now),
        **deadline,
        "initiator": operators.SCHEDULER_NAME,
        "reason": reason,
    }
    return {SOFT_EVICTION: msgspec.json.encode(record).decode()}


def read_deadline(text: str) -> float:
    """Return until when a victim may end by itself, as it was told; 0 if that makes no sense.

    Its owner can write the annotation, too: this is for people, and decides nothing.
    """
    try:
        return _deadlines.decode(text[:MAX_TEXT]).deadline.timestamp() if text else 0.0
    except MALFORMED:
        return 0.0


@cached_by_text()
def read_preempted_by(text: str) -> PreemptedBy:
    """Return who takes the place of a marked pod, as far as its annotation says so."""
    try:
        record = _victims.decode(text[:MAX_TEXT])
    except MALFORMED:
        return PreemptedBy("", "", "")
    return PreemptedBy(record.plan, record.preemptor, record.pod)


@cached_by_text()
def _decode_nomination(text: str) -> Nominated | None:
    try:
        record = _nominations.decode(text)
    except MALFORMED:
        return None
    if not record.node or not record.plan or not record.unit or record.pods < 1:
        return None
    return Nominated(record.node, record.plan, record.unit, record.pods, record.since)
