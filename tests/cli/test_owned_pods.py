"""Kinds as people write them, and the pods below an object of any kind."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import make_pod
from tests.cli.readings import make_reading
from typer.testing import CliRunner

from koord.answers.explain import PlacementState
from koord.answers.reading import Target, TargetKind, TargetNotFoundError
from koord.answers.why import make_answer
from koord.cli import connection
from koord.cli.explain_view import _follow_owners
from koord.cli.find_target import TargetLookup, _find_others, find_planned, find_target
from koord.cli.lint import _is_object
from koord.cli.main import app
from koord.cli.owned_pods import find_owner
from koord.cli.served_kinds import UnknownKindError, find_served, read_served_kinds
from koord.kube.config import Access
from koord.kube.errors import Forbidden, KubeError, NotFound

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

NOW = 1_800_000_000.0
GANG = "pod-group.scheduling.sigs.k8s.io"
KINDS = (  # in the order of a server: group, version, kind, plural, short names
    ("", "v1", "Pod", "pods", "po"),
    ("", "v1", "Node", "nodes", "no"),
    ("apps", "v1", "StatefulSet", "statefulsets", "sts"),
    ("batch", "v1", "Job", "jobs", ""),
    ("batch.volcano.sh", "v1alpha1", "Job", "jobs", "vcjob"),
    ("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets", ""),
    ("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs", "pt"),
    ("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets", "lws"),
    ("training.kubedl.io", "v1alpha1", "PyTorchJob", "pytorchjobs", "ptj"),
)


class Server:
    """Answers with objects of namespace ``a``, by kind and group; refuses what a test forbids."""

    def __init__(self, *objects: dict[str, Any], forbids: str = "") -> None:
        self.objects = objects
        self.forbids = forbids
        self.paths: list[str] = []

    async def get_as(self, accept: str, path: str, of: Any) -> Any:
        if "APIGroupDiscoveryList" in accept:
            return msgspec.convert(self._discover(path), of)
        assert "PartialObjectMetadataList" in accept
        return await self.get(path, of)

    def _discover(self, root: str) -> dict[str, Any]:
        items = [
            {
                "metadata": {"name": group},
                "versions": [
                    {
                        "version": version,
                        "resources": [
                            {
                                "resource": plural,
                                "responseKind": {"kind": kind},
                                "scope": "Cluster" if kind == "Node" else "Namespaced",
                                "singularResource": kind.lower(),
                                "verbs": ["get", "list"],
                                "shortNames": [short] if short else None,
                            }
                        ],
                    }
                ],
            }
            for group, version, kind, plural, short in KINDS
            if bool(group) == (root == "/apis")
        ]
        return {"items": items}

    async def get(self, path: str, of: Any, params: Mapping[str, str] | None = None) -> Any:
        self.paths.append(path)
        if self.forbids and self.forbids in path:
            raise Forbidden(403, "Forbidden", "no")
        root, _, rest = path.partition("/namespaces/a/")
        plural, _, name = rest.partition("/")
        kind = next(
            one
            for one in KINDS
            if one[3] == plural and root == (f"/apis/{one[0]}/{one[1]}" if one[0] else "/api/v1")
        )
        listed = [one for one in self.objects if (one["group"], one["kind"]) == (kind[0], kind[2])]
        if not name:
            return msgspec.convert({"items": listed}, of)
        for one in listed:
            if one["metadata"]["name"] == name:
                return msgspec.convert(one, of)
        raise NotFound(404, "NotFound", path)


def make(
    kind: str, name: str, owner: dict[str, Any] | None = None, group: str = "", **more: Any
) -> dict[str, Any]:
    group = group or next(one[0] for one in KINDS if one[2] == kind)
    meta = {
        "name": name,
        "namespace": "a",
        "uid": f"{kind}-{group}-{name}",
        "labels": more.pop("labels", {}),
        "creationTimestamp": "2027-01-15T07:59:00+00:00",
    }
    if owner is not None:
        reference = {key: owner[key] for key in ("apiVersion", "kind")}
        reference |= {key: owner["metadata"][key] for key in ("name", "uid")}
        meta["ownerReferences"] = [reference | {"controller": more.pop("controls", True)}]
    version = next(one[1] for one in KINDS if (one[0], one[2]) == (group, kind))
    api_version = f"{group}/{version}" if group else version
    return {"apiVersion": api_version, "group": group, "kind": kind, "metadata": meta} | more


def look(server: Server, kind: str, name: str = "x") -> TargetLookup:
    return asyncio.run(find_target(server, Target(kind, "a", name), NOW))  # type: ignore[arg-type]


def names_of(server: Server, kind: str, name: str = "x") -> set[str]:
    owner = asyncio.run(find_owner(server, Target(kind, "a", name)))  # type: ignore[arg-type]
    return {pod.metadata.name for pod in owner.pods}


@pytest.mark.parametrize(
    ("written", "title"),
    [
        ("pytorchjob", "pytorchjobs.kubeflow.org"),
        ("PyTorchJob", "pytorchjobs.kubeflow.org"),
        ("pytorchjobs", "pytorchjobs.kubeflow.org"),
        ("pytorchjobs.kubeflow.org", "pytorchjobs.kubeflow.org"),
        ("pytorchjobs.v1.kubeflow.org", "pytorchjobs.kubeflow.org"),
        ("pytorchjob.training.kubedl.io", "pytorchjobs.training.kubedl.io"),
        ("ptj", "pytorchjobs.training.kubedl.io"),
        ("lws", "leaderworkersets.leaderworkerset.x-k8s.io"),
        ("jobs.batch.volcano.sh", "jobs.batch.volcano.sh"),
        ("vcjob", "jobs.batch.volcano.sh"),
        ("jobs", "jobs.batch"),
        ("po", "pods"),
    ],
)
def test_kinds_are_written_as_for_kubectl(written: str, title: str) -> None:
    kinds = asyncio.run(read_served_kinds(Server()))  # type: ignore[arg-type]
    assert find_served(kinds, written).title == title


@pytest.mark.parametrize(
    ("written", "says"),
    [
        (
            "pytorchjobz",
            "no kind pytorchjobz in this cluster; did you mean pytorchjob or pytorchjobs",
        ),
        ("rayjob", "no kind rayjob in this cluster"),
        ("jobset.example.com", "in this cluster; there is jobsets.jobset.x-k8s.io"),
        ("pytorchjob.x", "there is pytorchjobs.kubeflow.org or pytorchjobs.training.kubedl.io"),
    ],
)
def test_a_kind_that_is_not_served_comes_with_what_there_is(written: str, says: str) -> None:
    kinds = asyncio.run(read_served_kinds(Server()))  # type: ignore[arg-type]
    with pytest.raises(UnknownKindError) as raised:
        find_served(kinds, written)
    assert says in str(raised.value)


SET = make("LeaderWorkerSet", "x")
LEADERS = make("StatefulSet", "x", SET)
LEADER = make("Pod", "x-0", LEADERS)
WORKERS = make("StatefulSet", "x-0", LEADER)
WORKER = make("Pod", "x-0-1", WORKERS)
OTHER_SET = make("LeaderWorkerSet", "y")
OTHER = make("Pod", "y-0", make("StatefulSet", "y", OTHER_SET))
GROUPS = (SET, LEADERS, LEADER, WORKERS, WORKER, OTHER_SET, OTHER)


def test_pods_are_found_below_other_owners_and_through_pods() -> None:
    server = Server(*GROUPS)
    assert names_of(server, "lws") == {"x-0", "x-0-1"}
    lists = [path for path in server.paths if path.count("/") < 8 and path.endswith("s")]
    assert sorted(lists) == [
        "/api/v1/namespaces/a/pods",
        "/apis/apps/v1/namespaces/a/statefulsets",
        "/apis/leaderworkerset.x-k8s.io/v1/namespaces/a/leaderworkersets",
    ], "each kind once"


def test_the_same_name_and_kind_of_another_group_is_another_object() -> None:
    kubeflow, kubedl = make("PyTorchJob", "x"), make("PyTorchJob", "x", group="training.kubedl.io")
    server = Server(kubeflow, kubedl, make("Pod", "k", kubeflow), make("Pod", "d", kubedl))
    assert names_of(server, "pytorchjob") == {"k"}
    assert names_of(server, "pytorchjobs.training.kubedl.io") == {"d"}


def test_owner_references_that_are_made_up_lead_nowhere() -> None:
    owner = make("PyTorchJob", "x")
    forged = make("Pod", "forged", owner)
    forged["metadata"]["ownerReferences"][0]["uid"] = "made-up"
    not_controlled = make("Pod", "second", owner, controls=False)
    a, b = make("Job", "a"), make("Job", "b")
    for one, other in ((a, b), (b, a)):
        one["metadata"] = make("Job", one["metadata"]["name"], other)["metadata"]
    turning = make("Pod", "turning", a)
    server = Server(owner, forged, not_controlled, a, b, turning, make("Pod", "own", owner))
    assert names_of(server, "pytorchjob") == {"own"}


def test_a_kind_that_may_not_be_listed_is_named() -> None:
    lookup = look(Server(*GROUPS, forbids="/statefulsets"), "lws")
    assert lookup.job is not None
    assert "You may not list statefulsets.apps: LeaderWorkerSet x may have" in lookup.job.notes[-1]


@given(st.lists(st.sampled_from(GROUPS), unique_by=id), st.sampled_from(["x", "y"]))
def test_what_is_found_is_below_it_whatever_is_missing(
    objects: list[dict[str, Any]], name: str
) -> None:
    try:
        found = names_of(Server(*objects), "lws", name)
    except TargetNotFoundError:
        found = set()
    assert found <= ({"x-0", "x-0-1"} if name == "x" else {"y-0"})


def test_an_object_stands_for_the_gang_of_its_pods_that_waits() -> None:
    owner = make("JobSet", "x")
    pods = [
        make("Pod", "p-0", owner, labels={GANG: "g-0"}, spec={"nodeName": "n"}),
        make("Pod", "p-1", owner, labels={GANG: "g-1"}),
        make("Pod", "p-2", owner, labels={GANG: "g-2"}, status={"phase": "Succeeded"}),
    ]
    lookup = look(Server(owner, *pods), "jobset")
    assert lookup.target == Target(TargetKind.POD_GROUP, "a", "g-1")
    assert lookup.typed == Target("JobSet", "a", "x")
    assert lookup.notes == ("JobSet x has 2 gangs; others are g-0.",)
    assert look(Server(owner, make("Pod", "p", owner)), "jobset").target.name == "p"


@pytest.mark.parametrize(
    ("body", "standing", "says"),
    [
        ({"spec": {"suspend": True}}, PlacementState.WAITING, "is suspended (spec.suspend)"),
        (
            {"spec": {"runPolicy": {"suspend": True}}},
            PlacementState.WAITING,
            "To resume it, set spec.runPolicy.suspend to false",
        ),
        (
            {"status": {"conditions": [{"type": "Failed", "status": "True", "reason": "Gone"}]}},
            PlacementState.ENDED,
            "PyTorchJob a/x is over, its condition Failed is true: Gone.",
        ),
        ({}, PlacementState.WAITING, "60s old and has no pods that live"),
        (
            {"spec": {"runPolicy": 7}, "status": {"conditions": [None, 3]}},
            PlacementState.WAITING,
            "kubectl describe pytorchjobs.kubeflow.org -n a x says why",
        ),
    ],
)
def test_an_object_without_pods_says_why(
    body: dict[str, Any], standing: PlacementState, says: str
) -> None:
    server = Server(make("PyTorchJob", "x", **body))
    lookup = look(server, "pytorchjob")
    assert lookup.target == lookup.typed
    assert lookup.job is not None
    assert lookup.job.standing is standing
    assert says in " ".join((*lookup.job.notes, *lookup.job.advice))
    with pytest.raises(TargetNotFoundError, match="PyTorchJob a/x is"):
        asyncio.run(find_planned(server, Target("pytorchjob", "a", "x"), NOW))  # type: ignore[arg-type]


def test_an_object_that_does_not_exist_comes_with_names_and_other_groups() -> None:
    server = Server(make("PyTorchJob", "xy"))
    with pytest.raises(TargetNotFoundError) as raised:
        look(server, "pytorchjob")
    assert str(raised.value) == (
        "there is no PyTorchJob x in namespace a; did you mean xy?; pytorchjobs.kubeflow.org was "
        "looked up, there is also pytorchjobs.training.kubedl.io/x"
    )
    with pytest.raises(TargetNotFoundError, match="nodes are in no namespace, and own no pods"):
        look(server, "no")
    with pytest.raises(KubeError, match=r"you may not get jobsets.jobset.x-k8s.io in namespace a"):
        look(Server(forbids="/jobsets/"), "jobset")


@pytest.mark.parametrize(
    ("first", "name", "found"),
    [
        ("lws", "x", ["leaderworkersets.leaderworkerset.x-k8s.io/a/x"]),
        ("", "x", ["leaderworkersets.leaderworkerset.x-k8s.io/a/x"]),
        ("", "y", ["statefulsets.apps/a/y"]),
        ("", "z", []),
    ],
)
def test_a_name_is_also_looked_for_among_the_owners_of_pods(
    first: str, name: str, found: list[str]
) -> None:
    named = asyncio.run(_find_others(Server(*GROUPS), first, "a", name))  # type: ignore[arg-type]
    assert sorted(one.argument for one in named) == found


@pytest.mark.parametrize(
    ("name", "is_object"),
    [
        ("jobset/x", True),
        ("PyTorchJob/a/x", True),
        ("jobsets.jobset.x-k8s.io/x", True),
        ("folder/x.yaml", False),
        ("x", False),
        ("./job", False),
        ("a/b/c/d", False),
        ("-", False),
        ("tests/cli", False),
    ],
)
def test_lint_knows_names_of_objects_from_those_of_files(name: str, *, is_object: bool) -> None:
    assert _is_object(name) is is_object


def test_objects_of_the_cluster_are_linted(monkeypatch: pytest.MonkeyPatch) -> None:
    role = {"restartPolicy": "Never", "template": {"spec": {"schedulerName": "koord-scheduler"}}}
    job = make("PyTorchJob", "x", spec={"pytorchReplicaSpecs": {"Worker": role}})

    @asynccontextmanager
    async def connect(*_: str) -> AsyncIterator[tuple[Server, Access]]:
        yield Server(job), Access("", namespace="a")

    monkeypatch.setattr("koord.cli.connection.open_client", connect)
    done = CliRunner().invoke(app, ["lint", "pytorchjob/x", "pytorchjob/a/x"])
    assert done.exit_code == 0, done.output
    assert "note: pytorchjob/a/x: PyTorchJob a/x: spec.pytorchReplicaSpecs.Worker" in done.output
    assert done.output.endswith("2 objects checked, 0 problems\n")
    done = CliRunner().invoke(app, ["lint", "jobset/y"])
    assert (done.exit_code, "there is no JobSet y in namespace a" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("typed", "title"),
    [
        (Target("PyTorchJob", "default", "x"), "PodGroup a"),
        (Target(TargetKind.POD, "default", "a-0"), "Pod a-0"),
    ],
)
def test_an_owner_stands_for_the_gang_that_only_the_planner_knows(
    typed: Target, title: str
) -> None:
    member = make_pod("default/a-0").annotation_gang("default/a", 2).build()
    reading = make_reading(member)
    found = TargetLookup(typed, Target(TargetKind.POD, "default", "a-0"))
    lookup, followed = _follow_owners(found, reading)
    assert f"{lookup.target.kind} {lookup.target.name}" == title
    answer = make_answer(followed, lookup.target, NOW)
    assert answer.reason is not None
    assert answer.reason.reason.code == "MissingMembers"


def test_kinds_and_names_are_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    job = make("PyTorchJob", "x")

    @asynccontextmanager
    async def connect(*_: str) -> AsyncIterator[tuple[Server, Access]]:
        yield Server(job), Access("", namespace="a")

    monkeypatch.setattr(connection, "open_client", connect)
    assert connection.list_kinds("pytorchjobs.k", "", "") == ["pytorchjobs.kubeflow.org"]
    assert connection.list_kinds("nod", "", "") == [], "nodes own no pods"
    assert connection.list_names("ptj", "", "", "") == []
    assert connection.list_names("pytorchjob", "", "", "") == ["x"]
    assert connection.list_names("nonsense", "", "", "") == []
