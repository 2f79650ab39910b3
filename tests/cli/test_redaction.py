"""What an asker may learn by name of others: nothing; amounts, places and own names stay."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import replace
from importlib import import_module
from pkgutil import walk_packages
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import GPU, make_node, make_pod, make_pod_group, make_quota
from tests.cli.readings import NOW, make_reading
from tests.objects import upsert_quota
from tests.support.laws import examples

import koord.core
from koord.answers.encoding import encode
from koord.answers.explain import PlacementState
from koord.answers.explanation import Explanation
from koord.answers.gaps import head_of, list_warnings
from koord.answers.queue_view import QueueEntry
from koord.answers.reading import Reading, Target, TargetKind
from koord.answers.redaction import NAMES, Sight, kind_of, redact
from koord.answers.waiting import find_waiting
from koord.answers.why import make_answer
from koord.cli.explain_view import make_parts
from koord.core.engine.reasons import CauseCount, Elsewhere, InsufficientNodes
from koord.core.model.reasons import Reason, ReasonContext
from koord.core.plugins.causes import NodeCause

if TYPE_CHECKING:
    from collections.abc import Iterator

OWN = Target(TargetKind.POD_GROUP, "team-a", "mine")
ONLY_A = Sight(frozenset({"team-a"}))
HARMLESS = {
    "Backoff.until",
    "BadValue.in_force",
    "BadValue.key",
    "BadValue.problem",
    "BadValue.value",
    "BindFailed.message",
    "BudgetSpent.month",
    "BudgetSpent.queue",
    "CauseCount.detail",
    "CauseCount.resource",
    "ClosedReservation.name",
    "DeprecatedKey.instead",
    "DeprecatedKey.key",
    "DomainOffer.path",
    "GangNotStarted.parent",
    "GangNotStarted.sub_group",
    "GroupClaims.claims",
    "GuaranteeKept.resource",
    "Hanging.finalizers",
    "InsufficientNodes.resource",
    "InternalError.error",
    "InternalError.quota",
    "InvalidOwner.field",
    "InvalidOwner.owner",
    "InvalidOwner.problem",
    "InvalidOwner.value",
    "InvalidPodAnnotation.problems",
    "InvalidQuota.key",
    "InvalidQuota.quota",
    "InvalidQuota.text",
    "InvalidRequest.amounts",
    "InvalidRequest.nearest",
    "InvalidRequest.unit",
    "InvalidReservation.problems",
    "JobNotPlannable.problem",
    "JobSuspended.name",
    "JobSuspended.namespace",
    "KubeSchedulerOnly.fields",
    "KueueAssignmentBlocked.lacks",
    "KueueAssignmentBlocked.node",
    "LateClaim.claim",
    "LateClaim.storage_class",
    "MemberOnFailedNode.nodes",
    "MemberOnLeavingNode.nodes",
    "MemberOnLeavingNode.taint",
    "MembersApart.layer",
    "MembersApart.nodes",
    "MembersApart.topology",
    "MinAboveSize.owner",
    "MissingMembers.left_out",
    "MissingTopology.topology",
    "NoReservationFits.name",
    "NoReservationFits.problems",
    "NodeLocked.lock",
    "ObjectTooLarge.message",
    "OwnerNotFound.owner",
    "OwnerSuspended.owner",
    "OwnerUnreadable.kind",
    "OwnerUnreadable.owner",
    "PinnedNodeUnfit.node",
    "PlacedOverLoad.excess",
    "PlacedOverLoad.node",
    "PlacedWithRoom.roles",
    "Planned.plan_id",
    "PodGroupsNotServed.versions",
    "PriorityNotAllowed.quota",
    "QueueFull.setting",
    "QueueLimitReached.queue",
    "QueueLimitReached.user",
    "QueueStopped.queue",
    "QueueStopped.stop",
    "QuotaAmbiguous.quotas",
    "QuotaCheckFailed.check",
    "QuotaCheckFailed.error",
    "QuotaExceeded.limit",
    "QuotaExceeded.request",
    "QuotaExceeded.topo",
    "QuotaExceeded.used",
    "QuotaGone.quota",
    "QuotaIsParent.quota",
    "QuotaNotAllowed.allowed",
    "QuotaNotAllowed.home",
    "QuotaNotAllowed.quota",
    "QuotaNotAllowed.shared_with",
    "QuotaShortage.resource",
    "QuotaUnknown.quota",
    "QuotaUnknown.usable",
    "QuotasNotServed.quota",
    "Reach.kept",
    "RefusedByScheduler.message",
    "RefusedByScheduler.node",
    "RestartProtected.what",
    "RestartingGang.what",
    "ScaledMin.parent",
    "ScaledMin.resource",
    "SubmissionExceeded.quota",
    "TimeLimitTooLong.queue",
    "TooLarge.kind",
    "TooLarge.what",
    "TooManyRunning.setting",
    "UnknownLayer.existing",
    "UnknownLayer.layers",
    "UnknownLayer.topology",
    "UnmetEntitlement.quota",
    "UnmetEntitlement.resource",
    "VolumeNotReady.claim",
    "VolumeNotReady.volume",
    "WaitingForForeignGate.gates",
    "WaitingForPreemption.plan_id",
    "WaitingForPreemption.until",
    "_NoCandidate.layer",
    "_NoCandidate.multiples",
    "_NoCandidate.topology",
    "_Restart.what",
}
"""Fields that hold text and name nobody else: resources, settings, the asker's own objects, nodes
(who may not list them gets no reason that rests on them)."""


def _holds_text(hint: object) -> bool:
    if isinstance(hint, type) and issubclass(hint, str):
        return hint is str
    return any(map(_holds_text, get_args(hint)))


def _all_below(kind: type) -> Iterator[type]:
    for below in kind.__subclasses__():
        yield below
        yield from _all_below(below)


def _find_classes(kind: type, seen: set[type]) -> None:
    if kind in seen or not dataclasses.is_dataclass(kind):
        return
    seen.add(kind)
    for hint in get_type_hints(kind).values():
        _find_in(hint, seen)


def _find_in(hint: object, seen: set[type]) -> None:
    if isinstance(hint, type):
        for each in (hint, *_all_below(hint)):
            _find_classes(each, seen)
    for argument in get_args(hint):
        _find_in(argument, seen)


def test_every_text_of_a_reason_is_judged() -> None:
    """A new field is either a name that may be hidden, or says why not."""
    for module in walk_packages(koord.core.__path__, "koord.core."):
        import_module(module.name)
    classes: set[type] = set()
    for base in (Reason, ReasonContext):
        for kind in _all_below(base):
            if kind.__module__.startswith("koord."):
                _find_classes(kind, classes)
    open_fields = set()
    for kind in classes:
        hints = get_type_hints(kind)
        for field in dataclasses.fields(kind):
            rows = {f"{base.__name__}.{field.name}" for base in kind.__mro__}
            is_judged = kind_of(kind, field.name) is not None or rows & HARMLESS
            if _holds_text(hints[field.name]) and not is_judged and "Reported" not in str(rows):
                open_fields.add(f"{kind.__name__}.{field.name}")
    assert open_fields == set()
    assert not HARMLESS & NAMES.keys()


def test_a_sentence_names_nobody_else() -> None:
    users = ("team-b/bert-*", "team-c/x", "team-a/own-*")
    full = (CauseCount(NodeCause.RESOURCE, 4, GPU),)
    there = Elsewhere(4, full, ("n1",), users)
    reason = InsufficientNodes(5, 3, 7, full, "team-a/w-0", GPU, 8, 2, there)
    assert "The other 4 nodes lack 8 free nvidia.com/gpu (team-b/bert-*" in reason.text()
    hidden = redact(reason, ONLY_A.hide)
    assert "gangs in other namespaces" in hidden.text()
    assert "team-b" not in hidden.text() + json.dumps(encode(hidden))
    assert encode(hidden)["elsewhere"]["users"] == [None, "team-a/own-*"]
    one = replace(reason, elsewhere=replace(there, users=users[:1]))
    assert "(a gang in another namespace)" in redact(one, ONLY_A.hide).text()
    assert redact(reason, Sight().hide) is reason


def make_scene(others: dict[str, str], gpus: int, sight: Sight) -> Reading:
    """Return two full nodes, a gang of the asker that waits, and gangs of others.

    ``others`` has for each of them its namespace; each has one pod that runs and one that waits.
    """
    objects: list[Any] = [make_node("n1").gpu(8).build(), make_node("n2").gpu(8).build()]
    objects.append(make_pod_group("team-a/mine", min_member=2).build())
    objects += [make_pod(f"team-a/mine-{at}").gang("team-a/mine").gpu(8).build() for at in (0, 1)]
    for at, (name, namespace) in enumerate(others.items()):
        objects.append(make_pod_group(f"{namespace}/{name}", min_member=1).build())
        running = make_pod(f"{namespace}/{name}-0").gang(f"{namespace}/{name}").gpu(gpus)
        objects.append(running.running(f"n{at % 2 + 1}").build())
        waiting = make_pod(f"{namespace}/{name}-1").gpu(8).priority(at)
        objects.append(waiting.build())
    reading = replace(make_reading(*objects), sight=sight)
    upsert_quota(reading.state, make_quota("all", min={GPU: 16}, max={GPU: 64}))
    return reading


def tell(reading: Reading) -> str:
    """Return everything that is answered, for programs and for people."""
    answer = make_answer(reading, OWN, NOW)
    waiting = find_waiting(reading, OWN)
    head = head_of("Queue", reading, OWN)
    lines = [str(part) for part in make_parts(answer, NOW, None)]
    texts = [entry.reason.text() for entry in waiting]
    document = [encode(answer), head.wrap(encode(waiting)), texts, list_warnings(reading, OWN)]
    return msgspec.json.encode([document, len(lines)], enc_hook=str).decode()


NAMES_OF_GANGS = st.lists(
    st.text("bcdxyz", min_size=3, max_size=6), min_size=1, max_size=3, unique=True
)


@settings(max_examples=examples(20))
@given(NAMES_OF_GANGS, st.sampled_from([1, 4, 8]))
def test_who_others_are_changes_nothing(names: list[str], gpus: int) -> None:
    """Two clusters that differ in names of others only, in the same order, give equal answers."""
    others = {name: f"secret-{name}" for name in sorted(names)}
    renamed = {f"w{name}": f"secret-w{name}" for name in sorted(names)}
    told = tell(make_scene(others, gpus, ONLY_A))
    assert told == tell(make_scene(renamed, gpus, ONLY_A))
    assert "secret" not in told


@settings(max_examples=examples(20))
@given(NAMES_OF_GANGS, st.sampled_from([1, 4, 8]))
def test_more_rights_take_nothing_away(names: list[str], gpus: int) -> None:
    others = {name: f"secret-{name}" for name in sorted(names)}
    less, more = (make_scene(others, gpus, sight) for sight in (ONLY_A, Sight()))
    rows, all_rows = (find_waiting(reading, OWN) for reading in (less, more))
    numbers = [
        [(row.position, row.gpus, row.gpus_ahead, row.reason.code) for row in of]
        for of in (rows, all_rows)
    ]
    assert numbers[0] == numbers[1]
    assert {gap.because for gap in head_of("Queue", less, OWN).gaps} == {"Hidden"}
    assert head_of("Queue", more, OWN).gaps == ()
    few, full = (encode(make_answer(reading, OWN, NOW)) for reading in (less, more))
    assert {key for key, found in few.items() if found} <= {k for k, found in full.items() if found}


@settings(max_examples=examples(20))
@given(NAMES_OF_GANGS, st.sampled_from([1, 4, 8]), st.integers(1, 3))
def test_answers_change_nothing(names: list[str], gpus: int, times: int) -> None:
    others = {name: f"team-{name}" for name in sorted(names)}
    reading = make_scene(others, gpus, Sight())
    untouched = tell(make_scene(others, gpus, Sight()))
    told = {tell(reading) for _ in range(times)}
    assert told == {untouched}


def test_the_queue_of_a_restricted_asker() -> None:
    reading = make_scene({"big": "team-z"}, 8, ONLY_A)
    entries = encode(find_waiting(reading, OWN))
    assert [entry["names"] for entry in entries] == [["team-a/mine"], [None]]
    assert entries[1]["gpus"] == 8
    assert entries[1]["gpusAhead"] == 16
    (gap,) = head_of("Queue", reading, OWN).wrap(entries)["gaps"]
    assert gap == {
        "missing": "pods of other namespaces",
        "because": "Hidden",
        "then": "names of their units are not shown",
    }


def test_what_is_not_hidden_is_the_same_object() -> None:
    answer = Explanation(OWN, PlacementState.WAITING)
    assert redact(answer, ONLY_A.hide) is answer
    assert isinstance(find_waiting(make_scene({}, 1, ONLY_A), OWN)[0], QueueEntry)
