"""Reads the shipped manifests, and installs them: once alone, once with all policies."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.manifests.waiting import wait_for

from koord_sandbox import Component, Sandbox
from koord_sandbox.errors import SandboxApiError

ROOT = Path(__file__).parents[2]
MANIFESTS = ROOT / "manifests"


def load_all(text):
    return [document for document in yaml.load_all(text, Loader=yaml.CSafeLoader) if document]


@pytest.fixture(scope="session")
def cluster_roles():
    """Every ClusterRole by name, as written."""
    return {
        document["metadata"]["name"]: document
        for path in sorted((MANIFESTS / "cluster").glob("*.yaml"))
        for document in load_all(path.read_text(encoding="utf-8"))
        if document["kind"] == "ClusterRole"
    }


@pytest.fixture(scope="session")
def installed() -> Iterator[Sandbox]:
    """A cluster of its own, without nodes, with the base installed as the documentation says."""
    with Sandbox(components=[Component.CONTROLLER_MANAGER]) as box:
        box.apply(ROOT / "crds")
        box.kubectl("apply", "-k", str(MANIFESTS / "base"))
        yield box


@pytest.fixture(scope="session")
def separate(installed) -> Sandbox:
    """The same cluster with the overlay of separate processes installed too."""
    installed.kubectl("apply", "-k", str(MANIFESTS / "overlays" / "separate"))
    return installed


@pytest.fixture(scope="session")
def guarded() -> Iterator[Sandbox]:
    """A complete cluster with the base, the separate processes and all policies."""
    with Sandbox() as box:
        box.apply(ROOT / "crds")
        for part in ("base", "overlays/separate", "overlays/inject", "overlays/devices"):
            box.kubectl("apply", "-k", str(MANIFESTS / part))
        wait_for(lambda: _is_denied(box), "the policy is in force")
        yield box


@pytest.fixture(scope="session")
def unprotected() -> Iterator[Sandbox]:
    """A cluster with the base, without its policies."""
    with Sandbox(components=[Component.CONTROLLER_MANAGER]) as box:
        box.apply(ROOT / "crds")
        box.kubectl("apply", "-k", str(MANIFESTS / "base"))
        remove_policies(box)
        wait_for(lambda: not _is_denied(box), "no policy is in force")
        yield box


def remove_policies(box: Sandbox) -> None:
    box.kubectl("delete", "validatingadmissionpolicybindings", "--all")


def _is_denied(box: Sandbox) -> bool:
    """The API server takes a moment to notice a policy."""
    pod = {
        "metadata": {"name": "x", "annotations": {"operators.koordinator.sh/plan": "x"}},
        "spec": {"containers": [{"name": "c", "image": "x"}]},
    }
    try:
        box.client.create("/api/v1/namespaces/default/pods?dryRun=All", pod)
    except SandboxApiError as error:
        return error.status == 403
    return False
