"""What moves of pods read: names that tenants write get into no path."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from koord.core.model.pods import OwnerReference
from koord.kube.errors import NotFound
from koord.kube.migrations import MigrationApi

if TYPE_CHECKING:
    from koord.kube.client import Client

NAMES = [
    "..",
    ".",
    "../../secrets/x",
    "x/status",
    "x?watch=true",
    "%2e%2e",
    "a b",
    "x\r\nGET /",
    "ü",
    "",
]


class Paths:
    """Remembers what is asked for, and has nothing."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def get(self, path: str, _: Any) -> Any:
        self.asked.append(path)
        raise NotFound(404, "NotFound", path)


@pytest.mark.parametrize("name", NAMES)
async def test_names_of_owners_and_gangs_that_no_object_has_are_not_asked_for(name: str) -> None:
    paths = Paths()
    api = MigrationApi(cast("Client", paths))
    for kind, version in (("ReplicaSet", "apps/v1"), ("Job", "batch/v1")):
        owner = OwnerReference(name, kind, version, "uid", is_controller=True)
        assert (await api.find_workload(owner, "ml", ())).replicas == 0
    assert await api.find_topology(f"ml/{name}", {}) == {}
    assert paths.asked == []


async def test_others_are() -> None:
    paths = Paths()
    api = MigrationApi(cast("Client", paths))
    owner = OwnerReference("web-7d.v1", "ReplicaSet", "apps/v1", "uid", is_controller=True)
    await api.find_workload(owner, "ml", ())
    await api.find_topology("ml/train", {})
    groups = "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/ml/podgroups/train"
    assert paths.asked == ["/apis/apps/v1/namespaces/ml/replicasets/web-7d.v1", groups]
