"""Regression tests: defects that the soak found, as shortened stories."""

from dataclasses import replace

import pytest
from tests.model.network import CrashPoint, Fault
from tests.model.objects import OTHER_SCHEDULER, PodPlan, make_pod_group
from tests.model.steps import Step, Story, play

from koord.api.keys import operators

BOTH = ("a", "b")


def pod(name: str, gpus: int, **how: object) -> Step:
    gang = name[0] if name[0] in "abc" else ""
    return Step(0.0, "create_pod", (replace(PodPlan(name, gpus, gang=gang), **how),))  # type: ignore[arg-type]


def group(name: str, minimum: int, groups: tuple[str, ...] = (), policy: str = "") -> Step:
    return Step(0.0, "put_pod_group", (make_pod_group(name, minimum, groups, policy),))


def after(wait: float, step: Step) -> Step:
    return replace(step, wait=wait)


STORIES = {
    "said to wait while somebody else bound it": Story(
        45717,
        (
            Step(0.0, "add_node", ("n0",)),
            Step(0.0, "begin_with_standby"),
            Step(0.1, "wait"),
            pod("b-1", 4, scheduler=OTHER_SCHEDULER),
            Step(0.0, "inject_faults", ((), 0.5, 5.0)),
            Step(0.004, "drop_gate", ("b-1", operators.PLACEMENT_GATE)),
        ),
    ),
    "said to wait by a process that has ended": Story(
        311679,
        (
            Step(0.0, "begin_with_standby"),
            after(0.004, pod("c-4", 2, other_gate=True)),
            after(0.02, pod("b-1", 8, other_gate=True)),
            Step(0.3, "crash", (1, "before")),
            pod("a-1", 4, scheduler=OTHER_SCHEDULER),
            after(0.3, group("b", 2, BOTH)),
            Step(0.3, "drop_finalizers", ("a-1",)),
            Step(0.3, "drop_gate", ("b-0", operators.PLACEMENT_GATE)),
            Step(0.004, "add_node", ("n0", 4)),
            pod("a-5", 8, gated=False),
            pod("b-3", 4),
            Step(0.3, "add_node", ("n4", 4)),
            Step(0.0, "drop_gate", ("b-1", operators.PLACEMENT_GATE)),
            Step(0.3, "add_node", ("n3", 4)),
            Step(0.0, "resize_node", ("n4", 0)),
            Step(0.3, "end_pod", ("c-5", "Failed")),
            Step(0.3, "bind_for_others", ("a-5", "n0")),
            Step(0.3, "crash", (3, "after")),
            Step(0.1, "wait"),
        ),
    ),
    "one operator takes back what stands in the other's words": Story(
        172,
        (
            Step(0.0, "inject_faults", ((), 0.0, 0.5)),
            Step(0.0, "add_node", ("n2",)),
            Step(0.0, "add_node", ("n3",)),
            Step(0.0, "start"),
            pod("a-1", 4, gated=False),
            Step(0.02, "resize_node", ("n2", 0)),
            after(0.3, group("a", 2, BOTH)),
            after(0.3, group("b", 2, BOTH)),
            pod("b-1", 8, gated=False),
            Step(0.3, "cordon", ("n3",)),
            Step(0.004, "move_pod", ("b-1", "a")),
            Step(0.3, "drop_finalizers", ("b-1",)),
            Step(0.3, "uncordon", ("n3",)),
            pod("a-0", 8, gated=False),
            Step(0.02, "move_pod", ("a-0", "")),
            after(0.3, group("b", 2, BOTH)),
            pod("b-0", 8, gated=False),
            Step(0.3, "move_pod", ("a-0", "b")),
            Step(0.0, "delete_pod", ("b-1",)),
            Step(0.02, "end_pod", ("a-0", "Succeeded")),
            Step(0.3, "resize_node", ("n3", 16)),
            Step(0.0, "remove_node", ("n3",)),
            Step(0.3, "resize_node", ("n2", 8)),
            pod("b-1", 8, scheduler=OTHER_SCHEDULER),
            Step(0.3, "delete_pod", ("a-0",)),
            pod("a-0", 8, gated=False),
            Step(0.0, "delete_pod", ("a-1",)),
        ),
    ),
    "PodGroups of another group of the API arrived earlier": Story(
        1,
        (
            Step(0.0, "add_node", ("n0",)),
            Step(0.0, "start"),
            Step(0.1, "wait"),
            group("a", 2),
            Step(0.1, "inject_faults", ((), 0.0, 5.0)),
            group("a", 3),
            Step(0.0, "inject_faults", ((), 0.0, 0.0)),
            after(2.5, pod("a-0", 4)),
            pod("a-1", 4),
        ),
    ),
    "two operators talk about a gang whose node went after its release": Story(
        0,
        (
            Step(0.0, "add_node", ("n0",)),
            group("c", 3),
            pod("c-0", 2),
            pod("c-1", 2),
            pod("c-2", 2),
            Step(0.0, "crash_at", (CrashPoint(4, is_before=False),)),
            Step(0.0, "start"),
            Step(0.3, "remove_node", ("n0",)),
        ),
    ),
    "two operators talk about a started gang whose group is one-sided": Story(
        0,
        (
            Step(0.0, "add_node", ("n0",)),
            group("a", 2, BOTH),
            group("b", 2, BOTH),
            *(pod(name, 2) for name in ("a-0", "a-1", "b-0", "b-1")),
            Step(0.0, "start"),
            Step(0.3, "delete_pod_group", ("b",)),
            group("b", 3),
            group("a", 4),
            pod("a-2", 8),
        ),
    ),
    "rights went after the answer to a binding was lost": Story(
        1,
        (
            Step(0.0, "add_node", ("n0",)),
            Step(0.0, "inject_faults", ((), 0.0, 0.0)),
            Step(0.0, "start"),
            Step(0.1, "wait"),
            pod("p-0", 8, gated=False),
            pod("p-1", 12, gated=False),
            Step(0.0, "inject_faults", ((Fault.LOST_AFTER,), 1.0, 10.0)),
            Step(0.02, "inject_faults", ((Fault.FORBIDDEN,), 1.0, 10.0)),
            Step(0.4, "inject_faults", ((), 0.0, 0.0)),
            Step(0.0, "resize_node", ("n0", 16)),
        ),
    ),
}


@pytest.mark.parametrize("name", STORIES)
def test_what_went_wrong_once(name: str) -> None:
    assert play(STORIES[name]) == []
