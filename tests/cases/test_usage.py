"""What pods hold is told by the command, and counted for Prometheus where that is on."""

from __future__ import annotations

import csv
import io
import json
import re
from contextlib import suppress
from http.client import HTTPConnection
from typing import TYPE_CHECKING

import pytest
from tests.operators.conftest import Cluster, Operators
from tests.operators.test_everyday import ask, koord

from koord_sandbox.errors import SandboxApiError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HELD = re.compile(
    r"^koord_usage_milligpu_seconds_total\{(?P<labels>.*)\} (?P<amount>\S+)$", re.MULTILINE
)


@pytest.fixture
def cluster(quiet_cluster: Cluster, tmp_path: Path) -> Iterator[Cluster]:
    operators = Operators(quiet_cluster.box, tmp_path, settings="usage: {metrics: true}\n")
    operators.start()
    try:
        yield Cluster(quiet_cluster.box, operators, quiet_cluster.namespace)
        assert operators.is_running(), operators.log.read_text()[-3000:]
    finally:
        for pod in quiet_cluster.pods():
            with suppress(SandboxApiError):
                quiet_cluster.delete_pod(pod)
        quiet_cluster.remove_nodes()
        operators.stop()


def read_held(cluster: Cluster) -> float:
    """Return the milli-GPU seconds that the operators have counted in the namespace."""
    port = re.findall(r"Serving HTTP .*port=(\d+)", cluster.operators.log.read_text())[-1]
    connection = HTTPConnection("127.0.0.1", int(port), timeout=5)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    label = f'namespace="{cluster.namespace}"'
    return sum(float(row["amount"]) for row in HELD.finditer(text) if label in row["labels"])


def test_what_a_pod_holds_is_counted_and_told(cluster: Cluster) -> None:
    cluster.add_nodes(1)
    cluster.pod("w-0", resources={"nvidia.com/gpu": 8})
    cluster.expect_bound("w-0")
    cluster.expect(lambda: read_held(cluster) >= 8_000, "8 GPUs were held for a second")
    usage = ask(cluster, "usage", "-n", cluster.namespace, "--by", "owner")
    (row,) = usage["rows"]
    assert (row["owner"], row["pods"]) == (f"{cluster.namespace}/w-0", 1)
    assert row["held"] == usage["total"]["held"] > 0
    assert row["held"] % 8_000 == 0  # of eight GPUs
    table = koord(cluster, "usage", "-n", cluster.namespace, "-o", "csv")
    heading, line = csv.reader(io.StringIO(table.stdout))
    assert heading[2:] == ["namespace", "heldMilliGpuMs", "gpuHours", "pods"]
    assert line[2] == cluster.namespace


def test_a_store_knows_of_pods_that_are_deleted(cluster: Cluster, tmp_path: Path) -> None:
    cluster.add_nodes(1)
    cluster.pod("w-0", resources={"nvidia.com/gpu": 8})
    cluster.expect_bound("w-0")
    store = ("--store", str(tmp_path / "usage.db"))
    look = ("usage", "record", *store, "--looks", "1")
    assert koord(cluster, *look).exit_code == 0
    cluster.delete_pod("w-0")
    cluster.expect(lambda: "w-0" not in cluster.pods(), "the pod is gone")
    assert koord(cluster, *look).exit_code == 0
    answer = koord(cluster, "usage", *store, "--segments", "-o", "jsonl", "-n", cluster.namespace)
    (segment,) = map(json.loads, answer.stdout.splitlines())
    assert (segment["pod"], segment["milliGpus"]) == ("w-0", 8_000)
    assert segment["end"] in {"LastSeen", "Status", "Grace"}
    report = koord(cluster, "usage", "report", *store)
    assert f"| {cluster.namespace} |" in report.stdout.replace("\\", "")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["november"], "2026-11"),
        (["--tz", "Mars/Olympus"], "Europe/Berlin"),
        (["--by", "user"], "--user-label"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(
    cluster: Cluster, arguments: list[str], text: str
) -> None:
    answer = koord(cluster, "usage", *arguments)
    assert answer.exit_code == 2
    assert text in answer.output
