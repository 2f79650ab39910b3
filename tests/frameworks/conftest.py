"""A cluster whose namespaces opt in by a label, with gangs from owners, and real controllers."""

from collections.abc import Iterator

import pytest
from tests.operators.conftest import ROOT, SETTINGS, Cluster, Operators, install, open_cluster
from tests.support.real_controllers import CONTROLLERS, run_controller

from koord.api.keys import operators
from koord_sandbox import Sandbox

PATIENCE_SECONDS = 150.0
"""Pods are made by way of several controllers and webhooks."""


@pytest.fixture(scope="package")
def labelled() -> Iterator[Sandbox]:
    with Sandbox() as box:
        install(box)
        for overlay in ("inject", "owners"):
            box.kubectl("apply", "-k", str(ROOT / "manifests/overlays" / overlay))
        yield box


@pytest.fixture
def controller(request, labelled, tmp_path):
    """The real controller that a test names, while the test runs."""
    with run_controller(labelled, CONTROLLERS[request.param], tmp_path) as log:
        yield log


@pytest.fixture
def cluster(labelled, controller, tmp_path_factory) -> Iterator[Cluster]:
    """A labelled namespace. The operators start when the kinds are there."""
    settings = f"{SETTINGS}owners: {{enabled: true}}\n"
    running = Operators(labelled, tmp_path_factory.mktemp("operators"), settings=settings)
    running.start()
    try:
        with open_cluster(labelled, running) as view:
            view.patience = PATIENCE_SECONDS
            label = f"{operators.INJECT}=all"
            labelled.kubectl("label", "namespace", view.namespace, label)
            yield view
    finally:
        running.stop()
