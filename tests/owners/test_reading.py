"""Which kinds of owners are read: those that are served, as they come and go."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from koord.api.owner_kinds import load_owner_kinds
from koord.core.owners.model import KindAccess
from koord.core.owners.plugin import OwnerGangs
from koord.domains.owner_settings import OwnerSettings, read_reported
from koord.domains.owners import OwnerKinds, make_kind
from koord.domains.registry import make_cluster_state
from koord.kube.errors import KubeError
from koord.kube.reflector import Absence
from koord.kube.served_kinds import select_served
from koord.runtime import owners as watching

READABLE = tuple(OwnerKinds.choose().readable)
PYTORCH = "kubeflow.org", "PyTorchJob"


class ServerWithGroups:
    """Answers which groups and resources there are."""

    def __init__(self, served: dict[str, set[str]]) -> None:
        self.served = served
        self.requests = 0
        self.is_broken = False

    async def get(self, _path: str, of: type[Any]) -> Any:
        self.requests += 1
        if self.is_broken:
            raise KubeError("no answer")
        versions = [SimpleNamespace(group_version=version) for version in self.served]
        return SimpleNamespace(groups=[SimpleNamespace(versions=versions)])

    async def served_resources(self, version: str) -> frozenset[str]:
        self.requests += 1
        return frozenset(self.served.get(version, ()))


def find(server: ServerWithGroups) -> list[str]:
    kinds = asyncio.run(select_served(cast("Any", server), READABLE))
    return [f"{kind.kind}.{kind.api_version}" for kind in kinds]


def test_kinds_that_are_not_installed_cost_no_request() -> None:
    server = ServerWithGroups({"batch/v1": {"jobs", "cronjobs"}, "acme/v1": {"jobs"}})
    assert find(server) == ["Job.batch/v1"]
    assert server.requests == 2
    assert len(READABLE) > 15


def test_the_first_version_that_is_served_is_read() -> None:
    server = ServerWithGroups({"kubeflow.org/v1": {"mpijobs"}})
    assert find(server) == ["MPIJob.kubeflow.org/v1"]
    server.served["kubeflow.org/v2beta1"] = {"mpijobs"}
    assert find(server) == ["MPIJob.kubeflow.org/v2beta1"]


def test_kinds_are_read_as_they_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(watching, "_RETRY_SECONDS", 0.0)
    state = make_cluster_state(*OwnerSettings(enabled=True).plan_options())
    server, added = ServerWithGroups({"batch/v1": {"jobs"}}), list[str]()
    reader = SimpleNamespace(state=state, add=lambda kind: added.append(kind.name))
    watch = watching.OwnerWatch(cast("Any", server), cast("Any", reader), OwnerKinds.choose())

    async def play() -> None:
        server.is_broken = True
        task = asyncio.ensure_future(watch.run())
        await asyncio.sleep(0.01)
        assert not watch.has_looked
        server.is_broken = False
        await asyncio.sleep(0.02)
        assert watch.has_looked
        assert added == ["jobs.batch"]
        assert state.plugin(OwnerGangs).access[PYTORCH] is KindAccess.NOT_SERVED
        server.served["kubeflow.org/v1"] = {"pytorchjobs"}
        await asyncio.sleep(0.02)
        assert added == ["jobs.batch", "pytorchjobs.kubeflow.org"]
        assert state.plugin(OwnerGangs).access[PYTORCH] is KindAccess.READ
        task.cancel()

    asyncio.run(play())


def test_a_list_that_is_refused_is_a_kind_that_must_not_be_read() -> None:
    state = make_cluster_state(*OwnerSettings(enabled=True).plan_options())
    pytorch = next(k for k in load_owner_kinds() if (k.group, k.kind) == PYTORCH)
    kind = make_kind(pytorch)
    assert kind.note_absence is not None
    kind.note_absence(state, Absence.PROVEN)
    assert state.plugin(OwnerGangs).access[PYTORCH] is KindAccess.FORBIDDEN
    kind.note_absence(state, Absence.NONE)
    assert state.plugin(OwnerGangs).access[PYTORCH] is KindAccess.READ


def test_commands_find_the_same_kinds_as_the_leader() -> None:
    own = {
        "group": "acme.example",
        "version": "v1",
        "kind": "Train",
        "plural": "trains",
        "gang": {"roles": "[{name: '', size: spec.nodes}]"},
    }
    settings = OwnerSettings.model_validate({"enabled": True, "kinds": [own]})
    assert read_reported(settings.report()) == settings
    assert OwnerSettings().report() is None
    assert not read_reported(None).enabled
    assert read_reported(({"colour": "blue"},)) == OwnerSettings(enabled=True)


def test_metadata_is_enough_for_kinds_that_say_no_more() -> None:
    by_kind = {kind.kind: make_kind(kind) for kind in load_owner_kinds() if kind.part != "ends"}
    assert by_kind["ReplicaSet"].is_metadata_only
    assert not by_kind["RayCluster"].is_metadata_only


def test_the_overlay_grants_to_read_what_is_read() -> None:
    from pathlib import Path  # noqa: PLC0415

    import yaml  # noqa: PLC0415

    path = Path(__file__).parents[2] / "manifests/overlays/owners/roles.yaml"
    role = next(iter(yaml.safe_load_all(path.read_text(encoding="utf-8"))))
    granted = {
        (group, resource)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert granted == {(kind.group, kind.plural) for kind in READABLE}
    assert {tuple(rule["verbs"]) for rule in role["rules"]} == {("list", "watch")}
