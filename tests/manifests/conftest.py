"""Reads the shipped manifests, and installs them for real once."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from koord.sandbox import Component, Sandbox

ROOT = Path(__file__).parents[2]
MANIFESTS = ROOT / "manifests"


def load_all(text):
    return [document for document in yaml.safe_load_all(text) if document]


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
