"""Shared fixtures: one sandbox of a kind per run, one namespace per test."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.namespaces import empty
from tests.support.shared_cluster import (
    cluster,
    operators,
    operators_box,
    quiet_cluster,
    unprotected,
    unprotected_cluster,
)

from koord.isolation import FAILURES
from koord_sandbox import Component, Sandbox, SandboxError
from koord_sandbox.binaries import find_binaries
from koord_sandbox.build import ConsoleReporter

__all__ = [
    "cluster",
    "operators",
    "operators_box",
    "quiet_cluster",
    "unprotected",
    "unprotected_cluster",
]

_SANDBOXES = {"sandbox", "operators_box", "unprotected"}


CLUSTER_FOLDERS = pytest.StashKey[set[str]]()
"""The folders with tests that use a control plane."""


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests that use a shared sandbox."""
    for item in items:
        if not _SANDBOXES.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.sandbox)
    with_cluster = (item.path for item in items if item.get_closest_marker("sandbox"))
    folder = Path(__file__).parent
    config.stash[CLUSTER_FOLDERS] = {path.relative_to(folder).parts[0] for path in with_cluster}


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the binaries before the first test, because building exceeds its time limit."""
    if session.config.option.collectonly:
        return
    if any(item.get_closest_marker("sandbox") for item in session.items):
        try:
            find_binaries(Component, ConsoleReporter())
        except SandboxError as error:
            raise pytest.UsageError(str(error)) from error


@pytest.fixture(autouse=True)
def nothing_isolated(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail tests in which a loop has swallowed an error, except those marked ``isolates``."""
    before = FAILURES.counts.copy()
    errors: list[Exception] = []
    FAILURES.report = lambda _loop, _key, error: errors.append(error)
    yield
    if request.node.get_closest_marker("isolates") is None and errors:
        raise ExceptionGroup(f"isolated in {FAILURES.counts - before}", errors)


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    """A control plane with all components and no nodes."""
    with Sandbox() as box:
        yield box


@pytest.fixture(scope="session")
def sandbox_kubeconfig(sandbox: Sandbox) -> Path:
    """The administrator's kubeconfig."""
    return sandbox.kubeconfig


@pytest.fixture
def namespace(sandbox: Sandbox) -> Iterator[str]:
    """A new namespace in which pods can be created."""
    name = f"test-{secrets.token_hex(4)}"
    sandbox.create_namespace(name)
    yield name
    empty(sandbox.client, name)
