"""Texts of reasons, and the registry of their codes."""

from __future__ import annotations

import pytest

from koord.core.engine import reasons as framework_reasons
from koord.core.engine.reasons import CauseCount, Elsewhere, InsufficientNodes
from koord.core.gang import reasons as gang_reasons
from koord.core.gang.reasons import (
    AllBound,
    AtStrength,
    BelowMin,
    GangCount,
    InconsistentGroup,
    InvalidAnnotation,
    MissingGang,
    MissingMembers,
    MissingPodGroup,
    PartiallyBound,
    PodGroupsNotServed,
    ScheduleTimeout,
    describe_settings,
)
from koord.core.model import reasons
from koord.core.model.gangs import BadValue, DeprecatedKey, GangMembership, GangSource
from koord.core.model.reasons import REASONS, BindFailed, Planned, Reason, WaitingForForeignGate
from koord.core.model.text import MAX_TEXT
from koord.core.plugins import volumes
from koord.core.plugins.causes import NodeCause
from koord.core.quota import reasons as quota_reasons
from koord.core.topology import reasons as topology_reasons

A, B = "default/a", "default/b"
GPU = "nvidia.com/gpu"


def make_shortage(**fields: object) -> InsufficientNodes:
    values: dict[str, object] = {
        "want": 8,
        "fit": 4,
        "nodes": 5,
        "refused": (
            CauseCount(NodeCause.UNSCHEDULABLE, 1),
            CauseCount(NodeCause.RESOURCE, 4, GPU),
            CauseCount(NodeCause.RESOURCE, 1, "cpu"),
        ),
        "first": "default/w-4",
        "resource": GPU,
        "request": 8,
        "more_nodes": 4,
    }
    return InsufficientNodes(**(values | fields))  # type: ignore[arg-type]


EXPECTED = [
    (
        MissingMembers((GangCount(A, 3, 4), GangCount(B, 1, 2))),
        "3 of 4 members of default/a present; default/b: 1 of 2 (child pod not collect enough)",
    ),
    (
        MissingMembers((GangCount(A, 0, 1),)),
        (
            "0 of 1 member of default/a present; no live pod belongs to it (child pod not "
            "collect enough)"
        ),
    ),
    (
        MissingMembers((GangCount(A, 0, 4), GangCount(B, 0, 4))),
        (
            "0 of 4 members of default/a present; default/b: 0 of 4; no live pod belongs to "
            "them (child pod not collect enough)"
        ),
    ),
    (
        MissingMembers((GangCount(A, 1, 4, strangers=3),)),
        (
            "1 of 4 members of default/a present; 3 more pods have neither our gate nor our "
            "scheduler name, so they count only after another scheduler has placed them (child "
            "pod not collect enough)"
        ),
    ),
    (
        MissingMembers((GangCount(A, 0, 4, waiting_only=True),)),
        (
            "0 of 4 members of default/a waiting (only-waiting: bound members do not count) "
            "(child pod not collect enough)"
        ),
    ),
    (
        MissingMembers((GangCount(A, 1, 4, waiting_only=True),)),
        (
            "1 of 4 members of default/a waiting (only-waiting: bound members do not count) "
            "(child pod not collect enough)"
        ),
    ),
    (
        MissingPodGroup(A),
        (
            "PodGroup default/a does not exist; create it, or correct the name on the pods "
            "(gang has not init, gangName: default/a)"
        ),
    ),
    (
        PodGroupsNotServed("default/scheduling.k8s.io:a", ("scheduling.k8s.io/v1beta1",)),
        (
            "PodGroup default/scheduling.k8s.io:a cannot be read: the API server serves none of "
            "scheduling.k8s.io/v1beta1, or does not let the operators list it"
        ),
    ),
    (
        MissingGang(A, (B, "default/c")),
        (
            "default/a lists gangs that do not exist: default/b, default/c; create them, or "
            "remove them from its groups (memberGangs [default/b default/c] doesn't exists)"
        ),
    ),
    (
        MissingGang(A, (B,)),
        (
            "default/a lists a gang that does not exist: default/b; create it, or remove it "
            "from its groups (memberGangs [default/b] doesn't exists)"
        ),
    ),
    (
        InvalidAnnotation(
            (BadValue("k/mode", "strict", "Strict", "must be Strict or NonStrict"),),
        ),
        'k/mode "strict" must be Strict or NonStrict (in force: Strict)',
    ),
    (
        InvalidAnnotation((BadValue("k/min", "", "none", "is missing"),)),
        "k/min is missing (in force: none)",
    ),
    (
        InconsistentGroup(A, (B,)),
        (
            "default/a lists default/b in its groups, but default/b does not list default/a; "
            "gangs start together only if each lists the other"
        ),
    ),
    (
        make_shortage(),
        (
            "Room for 4 of 8 pods. Of 5 nodes, 4 lack 8 free nvidia.com/gpu, 1 was unschedulable, "
            "1 lacks free cpu. 4 more empty nodes as large as the largest one would be enough. "
            "(0/5 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable, 4 "
            "Insufficient nvidia.com/gpu.)"
        ),
    ),
    (
        make_shortage(
            elsewhere=Elsewhere(
                1, (CauseCount(NodeCause.RESOURCE, 1, GPU),), ("n",), ("team-a/bert-*",)
            )
        ),
        (
            "Room for 4 of 8 pods. The other node lacks 8 free nvidia.com/gpu (team-a/bert-*). 4 "
            "more empty nodes as large as the largest one would be enough. (0/5 nodes are "
            "available: 1 Insufficient cpu, 1 node(s) were unschedulable, 4 Insufficient "
            "nvidia.com/gpu.)"
        ),
    ),
    (
        make_shortage(
            refused=(CauseCount(NodeCause.RESOURCE, 5, GPU),), elsewhere=Elsewhere(0, ())
        ),
        (
            "Room for 4 of 8 pods. Then all 5 nodes lack 8 free nvidia.com/gpu. 4 more empty "
            "nodes as large as the largest one would be enough. (0/5 nodes are available: 5 "
            "Insufficient nvidia.com/gpu.)"
        ),
    ),
    (
        make_shortage(elsewhere=Elsewhere(1, (CauseCount(NodeCause.TAINT, 1, detail="a: b"),))),
        (
            "Room for 4 of 8 pods. The other node had untolerated taint {a: b}. default/w-4 "
            "requests 8 nvidia.com/gpu. 4 more empty nodes as large as the largest one would be "
            "enough. (0/5 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable, "
            "4 Insufficient nvidia.com/gpu.)"
        ),
    ),
    (
        make_shortage(want=1, fit=0, resource="memory", request=3 << 30, more_nodes=0),
        (
            "No room for default/w-4. Of 5 nodes, 4 lack free nvidia.com/gpu, 1 was "
            "unschedulable, 1 lacks free cpu. default/w-4 requests 3Gi memory. No node could take "
            "it even if empty. (0/5 nodes are available: 1 Insufficient cpu, 1 node(s) were "
            "unschedulable, 4 Insufficient nvidia.com/gpu.)"
        ),
    ),
    (
        make_shortage(nodes=0, refused=(), resource="", more_nodes=0),
        ("Room for 4 of 8 pods. The cluster has no nodes. (no nodes available to schedule pods.)"),
    ),
    (
        WaitingForForeignGate("default/p", ("a.io/x", "a.io/y"), 1),
        "default/p has scheduling gates of other controllers: a.io/x, a.io/y",
    ),
    (
        WaitingForForeignGate("default/p", ("a.io/x",), 2),
        "2 pods have scheduling gates of other controllers: a.io/x; the first is default/p",
    ),
    (Planned(8, 2, "p-1"), "8 pods placed on 2 nodes (plan p-1)"),
    (Planned(1, 1), "1 pod placed on 1 node"),
    (Planned(8, 2, waits=True), "there is room for 8 pods on 2 nodes now"),
    (Planned(3, 2, "", 3), "3 pods placed on 2 nodes; 3 of them by other schedulers"),
    (AtStrength(has_minimum=True), "the gang has its minimum"),
    (AtStrength(has_minimum=False), "the gang is not running"),
    (AllBound(4, 4), "4 of 4 members bound; none is waiting for a node"),
    (PartiallyBound(1, 4), "1 of 4 members bound"),
    (
        BindFailed("default/p", 409, "already assigned"),
        "the API server refused a write for default/p (409), retrying: already assigned",
    ),
    (
        BindFailed("default/p", 500, "failed calling webhook"),
        (
            "the API server failed to complete a write for default/p (500), retrying: failed "
            "calling webhook"
        ),
    ),
    (
        BindFailed("default/p", 0, "no connection"),
        "a write for default/p got no usable answer, retrying: no connection",
    ),
    (
        BelowMin(2, 4),
        (
            "the started gang has 2 of 4 required members left; replacements are placed before "
            "all other pods"
        ),
    ),
    (
        ScheduleTimeout(700, 600),
        (
            "all members are present but no place was found for 700 s, longer than the 600 s "
            "allowed; still trying"
        ),
    ),
]


@pytest.mark.parametrize(
    ("reason", "text"), EXPECTED, ids=[type(reason).__name__ for reason, _ in EXPECTED]
)
def test_texts(reason: Reason, text: str) -> None:
    """The last words, in brackets, are upstream's: they are written for ``compat`` only."""
    assert reason.text(compat=True) == text
    assert reason.text() == text.removesuffix(f" ({reason.upstream()})")


def test_codes_are_unique() -> None:
    with pytest.raises(TypeError, match="share the code Planned"):
        type("Other", (Reason,), {"code": "Planned"})


def test_registry_contains_every_code() -> None:
    modules = (framework_reasons, gang_reasons, volumes, quota_reasons, reasons)
    classes = {
        one
        for module in (*modules, topology_reasons)
        for one in vars(module).values()
        if isinstance(one, type) and issubclass(one, Reason) and hasattr(one, "code")
    }
    assert classes <= set(REASONS.values())
    assert all(cls.code == code for code, cls in REASONS.items())


@pytest.mark.parametrize(
    ("refused", "text"),
    [
        (CauseCount(NodeCause.UNSCHEDULABLE, 2), "2 node(s) were unschedulable"),
        (
            CauseCount(NodeCause.TAINT, 2, detail="gpu: yes"),
            "2 node(s) had untolerated taint {gpu: yes}",
        ),
        (
            CauseCount(NodeCause.SELECTOR, 2),
            "2 node(s) didn't match Pod's node affinity/selector",
        ),
        (
            CauseCount(NodeCause.HOST_PORT, 2),
            "2 node(s) didn't have free ports for the requested pod ports",
        ),
        (CauseCount(NodeCause.RESOURCE, 2, "cpu"), "2 Insufficient cpu"),
        (CauseCount(NodeCause.RESOURCE, 2, "pods"), "2 Too many pods"),
    ],
)
def test_causes_use_the_words_of_kube_scheduler(refused: CauseCount, text: str) -> None:
    assert refused.text() == text


def test_text_for_another_member_names_the_culprit() -> None:
    shortage = make_shortage()
    assert shortage.text_for("default/w-4") == shortage.text()
    assert shortage.text_for("default/w-5").endswith(
        " This pod only starts together with default/w-4."
    )
    failure = BindFailed("default/w-4", 422, "too long")
    assert failure.text_for("default/w-4").endswith("too long")
    assert failure.text_for("default/w-5").endswith(
        " This pod only starts together with default/w-4."
    )
    missing = MissingMembers((GangCount(A, 3, 4),))
    assert missing.text_for("default/w-5") == missing.text()


@pytest.mark.parametrize(
    "reason",
    [
        MissingMembers(tuple(GangCount(f"ns/{'g' * 300}-{i}", 1, 2) for i in range(500))),
        MissingGang(A, tuple("x" * 5000 for _ in range(500))),
        InvalidAnnotation(tuple(BadValue("k" * 500, "v" * 500, "d" * 500, "p") for _ in "1234")),
        make_shortage(
            refused=tuple(CauseCount(NodeCause.TAINT, 1, detail=f"{i}" * 900) for i in "1234") * 99,
        ),
        BindFailed("default/p", 500, "m" * 100_000),
    ],
)
def test_texts_are_limited_in_length(reason: Reason) -> None:
    assert len(reason.text()) <= MAX_TEXT
    assert len(reason.text_for("default/other")) <= MAX_TEXT


def test_causes_beyond_the_limit_are_counted() -> None:
    refused = tuple(CauseCount(NodeCause.TAINT, 30 - i, detail=f"t{i}: ") for i in range(20))
    text = make_shortage(refused=refused).text()
    assert "30 had untolerated taint {t0: }" in text
    assert "12 more causes" in text
    assert "{t19: }" not in text


def test_notes_name_invalid_and_deprecated_settings() -> None:
    bad = BadValue("a/mode", "strict", "Strict", "must be Strict or NonStrict")
    claim = GangMembership(A, GangSource.ANNOTATION, None, (bad,), (DeprecatedKey("old", "new"),))
    assert describe_settings(claim) == (
        'Note: a/mode "strict" must be Strict or NonStrict (in force: Strict); '
        "old is deprecated, use new"
    )
    assert describe_settings(GangMembership(A, GangSource.POD_GROUP)) == ""
