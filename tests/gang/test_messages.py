"""What users read."""

from __future__ import annotations

from typing import get_args

import pytest

from koord.core import reasons as r
from koord.core.gang.model import BadValue, DeprecatedKey, GangClaim, GangSource
from koord.core.messages import (
    _TEXTS,
    MAX_TEXT,
    render,
    render_for_pod,
    render_notes,
    render_refusal,
)
from koord.core.reasons import GangCount, NodeRefusal, Reason, RefusedNodes

A, B = "default/a", "default/b"
GPU = "nvidia.com/gpu"


def make_shortage(**fields: object) -> r.InsufficientNodes:
    values: dict[str, object] = {
        "want": 8,
        "fit": 4,
        "nodes": 5,
        "refused": (
            RefusedNodes(NodeRefusal.UNSCHEDULABLE, 1),
            RefusedNodes(NodeRefusal.RESOURCE, 4, GPU),
            RefusedNodes(NodeRefusal.RESOURCE, 1, "cpu"),
        ),
        "first": "default/w-4",
        "resource": GPU,
        "request": 8,
        "more_nodes": 4,
    }
    return r.InsufficientNodes(**(values | fields))  # type: ignore[arg-type]


EXPECTED = [
    (
        r.MissingMembers((GangCount(A, 3, 4), GangCount(B, 1, 2))),
        "3 of 4 members of default/a present; default/b: 1 of 2 (child pod not collect enough)",
    ),
    (
        r.MissingMembers((GangCount(A, 0, 1),)),
        ("0 of 1 member of default/a present; no live pod names it (child pod not collect enough)"),
    ),
    (
        r.MissingMembers((GangCount(A, 0, 4), GangCount(B, 0, 4))),
        (
            "0 of 4 members of default/a present; default/b: 0 of 4; no live pod names them "
            "(child pod not collect enough)"
        ),
    ),
    (
        r.MissingMembers((GangCount(A, 1, 4, strangers=3),)),
        (
            "1 of 4 members of default/a present; 3 more pods have neither our gate nor our "
            "scheduler name, so they count only once others have placed them "
            "(child pod not collect enough)"
        ),
    ),
    (
        r.MissingMembers((GangCount(A, 0, 4, waiting_only=True),)),
        (
            "0 of 4 members of default/a waiting (only-waiting: bound members do not count) "
            "(child pod not collect enough)"
        ),
    ),
    (
        r.MissingMembers((GangCount(A, 1, 4, waiting_only=True),)),
        (
            "1 of 4 members of default/a waiting (only-waiting: bound members do not count) "
            "(child pod not collect enough)"
        ),
    ),
    (
        r.MissingPodGroup(A),
        (
            "PodGroup default/a does not exist; create it, or correct the name on the pods "
            "(gang has not init, gangName: default/a)"
        ),
    ),
    (
        r.MissingGang(A, (B, "default/c")),
        (
            "default/a starts together with default/b, default/c, of which nothing exists; "
            "create them, or take them out of its groups "
            "(memberGangs [default/b default/c] doesn't exists)"
        ),
    ),
    (
        r.MissingGang(A, (B,)),
        (
            "default/a starts together with default/b, of which nothing exists; "
            "create it, or take it out of its groups (memberGangs [default/b] doesn't exists)"
        ),
    ),
    (
        r.InvalidAnnotation(
            (BadValue("k/mode", "strict", "Strict", "must be Strict or NonStrict"),),
        ),
        'k/mode "strict" must be Strict or NonStrict (in force: Strict)',
    ),
    (
        r.InvalidAnnotation((BadValue("k/min", "", "none", "is missing"),)),
        "k/min is missing (in force: none)",
    ),
    (
        r.InconsistentGroup(A, (B,)),
        (
            "default/a lists default/b in its groups, but default/b does not list default/a; "
            "gangs start together only if each lists the other"
        ),
    ),
    (
        make_shortage(),
        (
            "0/5 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable, "
            "4 Insufficient nvidia.com/gpu. 4 of 8 pods fit; "
            "the next, default/w-4, asks for 8 nvidia.com/gpu; "
            "4 more nodes like the largest here, empty, would do."
        ),
    ),
    (
        make_shortage(want=1, fit=0, resource="memory", request=3 << 30, more_nodes=0),
        (
            "0/5 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable, "
            "4 Insufficient nvidia.com/gpu. default/w-4 asks for 3Gi memory; "
            "no node here could take it even when empty."
        ),
    ),
    (
        make_shortage(nodes=0, refused=(), resource="", more_nodes=0),
        (
            "no nodes available to schedule pods. "
            "4 of 8 pods fit; default/w-4 is the first without a place."
        ),
    ),
    (
        r.WaitingForForeignGate("default/p", ("a.io/x", "a.io/y"), 1),
        "default/p waits behind scheduling gates of others: a.io/x, a.io/y",
    ),
    (
        r.WaitingForForeignGate("default/p", ("a.io/x",), 2),
        "2 pods wait behind scheduling gates of others: a.io/x; the first is default/p",
    ),
    (r.Planned(8, 2, "p-1"), "8 pods have a place on 2 nodes (plan p-1)"),
    (r.Planned(1, 1), "1 pod has a place on 1 node"),
    (r.Planned(3, 2, "", 3), "3 pods have a place on 2 nodes; others placed 3 of them"),
    (r.AtStrength(has_minimum=True), "the gang has its minimum or more"),
    (r.AtStrength(has_minimum=False), "the gang does not run"),
    (r.AllBound(4, 4), "4 of 4 members bound; none waits for a node"),
    (r.PartiallyBound(1, 4), "1 of 4 members bound"),
    (
        r.BindFailed("default/p", 409, "already assigned"),
        "the API server refused a write for default/p (409), trying again: already assigned",
    ),
    (
        r.BindFailed("default/p", 500, "failed calling webhook"),
        (
            "the API server failed to carry out a write for default/p (500), trying again: "
            "failed calling webhook"
        ),
    ),
    (
        r.BindFailed("default/p", 0, "no connection"),
        "a write for default/p got no usable answer, trying again: no connection",
    ),
    (
        r.BelowMin(2, 4),
        (
            "the gang has started and has 2 members left of the 4 it needs; "
            "replacements go before all other pods"
        ),
    ),
    (
        r.ScheduleTimeout(700, 600),
        (
            "all members present and no place found for 700 s, longer than the 600 s allowed; "
            "still trying"
        ),
    ),
]


@pytest.mark.parametrize(
    ("reason", "text"), EXPECTED, ids=[type(reason).__name__ for reason, _ in EXPECTED]
)
def test_texts(reason: Reason, text: str) -> None:
    assert render(reason) == text


def test_every_reason_has_a_text_and_a_code_of_its_own() -> None:
    assert set(_TEXTS) == set(get_args(Reason))
    codes = [reason.code for reason in get_args(Reason)]
    assert len(set(codes)) == len(codes) == len(r.ReasonCode)


@pytest.mark.parametrize(
    ("refused", "text"),
    [
        (RefusedNodes(NodeRefusal.UNSCHEDULABLE, 2), "2 node(s) were unschedulable"),
        (
            RefusedNodes(NodeRefusal.TAINT, 2, detail="gpu: yes"),
            "2 node(s) had untolerated taint {gpu: yes}",
        ),
        (
            RefusedNodes(NodeRefusal.SELECTOR, 2),
            "2 node(s) didn't match Pod's node affinity/selector",
        ),
        (
            RefusedNodes(NodeRefusal.HOST_PORT, 2),
            "2 node(s) didn't have free ports for the requested pod ports",
        ),
        (RefusedNodes(NodeRefusal.RESOURCE, 2, "cpu"), "2 Insufficient cpu"),
        (RefusedNodes(NodeRefusal.RESOURCE, 2, "pods"), "2 Too many pods"),
    ],
)
def test_causes_read_as_kube_scheduler_writes_them(refused: RefusedNodes, text: str) -> None:
    assert render_refusal(refused) == text


def test_other_members_are_told_who_holds_them_up() -> None:
    shortage = make_shortage()
    assert render_for_pod(shortage, "default/w-4") == render(shortage)
    assert render_for_pod(shortage, "default/w-5").endswith(" This pod waits for default/w-4.")
    failure = r.BindFailed("default/w-4", 422, "too long")
    assert render_for_pod(failure, "default/w-4").endswith("too long")
    assert render_for_pod(failure, "default/w-5").endswith(" This pod waits for default/w-4.")
    missing = r.MissingMembers((GangCount(A, 3, 4),))
    assert render_for_pod(missing, "default/w-5") == render(missing)


@pytest.mark.parametrize(
    "reason",
    [
        r.MissingMembers(tuple(GangCount(f"ns/{'g' * 300}-{i}", 1, 2) for i in range(500))),
        r.MissingGang(A, tuple("x" * 5000 for _ in range(500))),
        r.InvalidAnnotation(tuple(BadValue("k" * 500, "v" * 500, "d" * 500, "p") for _ in "1234")),
        make_shortage(
            refused=tuple(RefusedNodes(NodeRefusal.TAINT, 1, detail=f"{i}" * 900) for i in "1234")
            * 99,
        ),
        r.BindFailed("default/p", 500, "m" * 100_000),
    ],
)
def test_texts_are_bounded(reason: Reason) -> None:
    assert len(render(reason)) <= MAX_TEXT
    assert len(render_for_pod(reason, "default/other")) <= MAX_TEXT


def test_many_causes_become_a_count() -> None:
    refused = tuple(RefusedNodes(NodeRefusal.TAINT, 30 - i, detail=f"t{i}: ") for i in range(20))
    text = render(make_shortage(refused=refused))
    assert "30 node(s) had untolerated taint {t0: }" in text
    assert "12 more causes" in text
    assert "{t19: }" not in text


def test_notes_name_what_is_odd_and_are_nothing_if_nothing_is() -> None:
    bad = BadValue("a/mode", "strict", "Strict", "must be Strict or NonStrict")
    claim = GangClaim(A, GangSource.ANNOTATION, None, (bad,), (DeprecatedKey("old", "new"),))
    assert render_notes(claim) == (
        'Note: a/mode "strict" must be Strict or NonStrict (in force: Strict); '
        "old is deprecated, use new"
    )
    assert render_notes(GangClaim(A, GangSource.POD_GROUP)) == ""
