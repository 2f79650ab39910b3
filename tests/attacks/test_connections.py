"""A tenant whose pod reaches the port of metrics opens connections, and does nothing with them."""

import re
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.operators.conftest import Cluster

DESCRIPTORS = 1024
CONNECTIONS = 1089
SENDS = (
    b"",
    b"GET /metrics HTTP/1.1\r\nHost: x\r\nX-A: ",
    b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
)
"""What a client sends that then neither goes on nor reads."""


@pytest.fixture
def cluster(quiet_cluster: Cluster) -> Iterator[Cluster]:
    """The cluster, with operators that may have few file descriptors."""
    operators = quiet_cluster.operators
    operators.start()
    resource.prlimit(operators.pid, resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    yield quiet_cluster
    operators.stop()


def find_port(cluster: Cluster) -> int:
    ports: list[str] = []

    def is_served() -> bool:
        ports[:] = re.findall(r"Serving HTTP .*port=(\d+)", cluster.operators.read_log())
        return bool(ports)

    cluster.expect(is_served, "it serves HTTP")
    return int(ports[-1])


@contextmanager
def connected(port: int) -> Iterator[None]:
    """Hold more connections than the operators may have file descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    made = []
    try:
        for number in range(CONNECTIONS):
            one = socket.create_connection(("127.0.0.1", port), source_address=("127.0.0.2", 0))
            made.append(one)
            one.sendall(SENDS[number % len(SENDS)])
        yield
    finally:
        for one in made:
            one.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def read_status(port: int, path: str) -> str:
    with socket.create_connection(("127.0.0.1", port), timeout=5) as probe:
        probe.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        return probe.recv(64).decode().split()[1]


def test_idle_connections_disturb_neither_placement_nor_probes(cluster: Cluster) -> None:
    operators, port = cluster.operators, find_port(cluster)
    cluster.add_nodes(1)
    cluster.pod("before", gpus=1)
    cluster.expect_bound("before")
    with connected(port):
        for number in range(4):
            cluster.pod(f"after-{number}", gpus=1)
            assert [read_status(port, path) for path in ("/healthz", "/readyz")] == ["200", "200"]
        cluster.expect_bound(*(f"after-{number}" for number in range(4)))
    assert operators.is_running()
    assert "Too many open files" not in operators.log.read_text()
