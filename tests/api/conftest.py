"""An API server of its own, with our CRDs: the samples name nodes and namespaces as they like."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from koord_sandbox import Component, Sandbox

CRDS = Path(__file__).parents[2] / "crds"


@pytest.fixture(scope="session")
def server() -> Iterator[Sandbox]:
    with Sandbox(components=[Component.CONTROLLER_MANAGER]) as box:
        box.apply(CRDS)
        yield box
