"""A control plane with the operators that we ship, for all tests of one process.

Tests of several folders share it: starting one takes four seconds of a processor, and the operators
one or two more.
"""

from collections.abc import Iterator

import pytest
from tests.operators.conftest import (
    SETTINGS,
    Cluster,
    Operators,
    install,
    open_cluster,
    wait_until_unprotected,
)

from koord_sandbox import Sandbox


@pytest.fixture(scope="session")
def operators_box() -> Iterator[Sandbox]:
    """A sandbox with our CRDs and RBAC installed."""
    with Sandbox() as box:
        install(box)
        yield box


@pytest.fixture(scope="session")
def operators(
    operators_box: Sandbox,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Operators]:
    """The operators, for the whole session; a test that stops them may leave them stopped."""
    running = Operators(operators_box, tmp_path_factory.mktemp("operators"), settings=SETTINGS)
    running.start()
    yield running
    if running.is_running():
        running.stop()


@pytest.fixture
def cluster(operators_box: Sandbox, operators: Operators) -> Iterator[Cluster]:
    """A namespace, with the operators running."""
    if not operators.is_running():
        operators.start()
    with open_cluster(operators_box, operators) as view:
        yield view
    assert operators.is_running(), operators.log.read_text()[-3000:]


@pytest.fixture
def quiet_cluster(operators_box: Sandbox, operators: Operators) -> Iterator[Cluster]:
    """A namespace without running operators; the test starts its own."""
    operators.stop()
    with open_cluster(operators_box, operators) as view:
        yield view


@pytest.fixture(scope="session")
def unprotected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operators]:
    """The operators in a sandbox of their own, without the policies of the base."""
    with Sandbox() as box:
        install(box)
        box.kubectl("delete", "validatingadmissionpolicybindings", "--all")
        wait_until_unprotected(box)
        running = Operators(box, tmp_path_factory.mktemp("unprotected"), settings=SETTINGS)
        running.start()
        yield running
        running.end()


@pytest.fixture
def unprotected_cluster(unprotected: Operators) -> Iterator[Cluster]:
    """A namespace where nothing but signatures shows what the operators wrote."""
    with open_cluster(unprotected.box, unprotected) as view:
        yield view
