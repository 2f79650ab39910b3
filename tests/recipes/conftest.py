"""A cluster with the operators, and definitions of the frameworks' kinds."""

from collections.abc import Iterator

import pytest
from tests.operators.conftest import SETTINGS, Cluster, Operators, install, open_cluster
from tests.operators.test_devices import DEVICES, make_device
from tests.support.job_controllers import JobControllers, install_definitions

from koord_sandbox import Sandbox

LABELS = ("example.com/topology-block", "example.com/topology-rack")
PATIENCE_SECONDS = 150.0
"""Pods are made by way of several controllers, which may have to share the processors."""


@pytest.fixture(scope="session")
def frameworks() -> Iterator[Sandbox]:
    with Sandbox() as box:
        install(box)
        install_definitions(box)
        yield box


@pytest.fixture(scope="session")
def running(frameworks, tmp_path_factory) -> Iterator[Operators]:
    operators = Operators(frameworks, tmp_path_factory.mktemp("operators"), settings=SETTINGS)
    operators.start()
    yield operators
    operators.end()


@pytest.fixture
def cluster(frameworks, running) -> Iterator[Cluster]:
    """A namespace, and eight nodes in two racks that offer whole GPUs and parts of GPUs."""
    with open_cluster(frameworks, running) as view:
        view.patience = PATIENCE_SECONDS
        names = view.add_nodes(8)
        for at, name in enumerate(names):
            path = f"/api/v1/nodes/{name}"
            labels = dict.fromkeys(LABELS, f"{view.namespace}-{at // 4}")
            frameworks.client.patch(path, {"metadata": {"labels": labels}})
            frameworks.client.create(DEVICES, make_device(name))
        yield view
        for name in names:
            frameworks.client.delete(f"{DEVICES}/{name}")


@pytest.fixture
def controllers(frameworks, cluster) -> JobControllers:
    return JobControllers(frameworks, cluster.namespace)
