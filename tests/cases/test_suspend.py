"""An Indexed Job waits suspended, without pods, and starts once all of its pods have room."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from tests.operators.conftest import ROOT, SERVICE_ACCOUNT, Cluster, Operators, make_pod
from typer.testing import CliRunner

from koord.cli.main import app
from koord_sandbox.errors import KubectlError, SandboxApiError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MODE = "operators.koordinator.sh/admission"
HELD = "operators.koordinator.sh/held-room"
PLACED = "operators.koordinator.sh/Placed"
SETTINGS = "suspend: {enabled: true}\n"
PATCH = ("patch", "job", "train", f"--as={SERVICE_ACCOUNT}")
OVERLAY = str(ROOT / "manifests/overlays/suspend")


@pytest.fixture
def resuming(quiet_cluster: Cluster, tmp_path: Path) -> Iterator[Cluster]:
    box = quiet_cluster.box
    box.kubectl("apply", "-k", OVERLAY)
    running = Operators(box, tmp_path, settings=SETTINGS)
    cluster = Cluster(box, running, quiet_cluster.namespace)
    running.start()
    try:
        yield cluster
        assert running.is_running(), running.log.read_text()[-3000:]
    finally:
        for job in box.client.get(jobs_path(cluster))["items"]:
            with suppress(SandboxApiError):
                box.kubectl("delete", "job", job["metadata"]["name"], "-n", cluster.namespace)
        for pod in cluster.pods():
            with suppress(SandboxApiError):
                cluster.delete_pod(pod)
        cluster.remove_nodes()
        running.stop()
        box.kubectl("delete", "-k", OVERLAY)


def jobs_path(cluster: Cluster) -> str:
    return f"/apis/batch/v1/namespaces/{cluster.namespace}/jobs"


def submit(cluster: Cluster, name: str, count: int, gpus: int) -> None:
    spec = make_pod(cluster.namespace, name, gpus=gpus)["spec"]
    body: dict[str, Any] = {
        "metadata": {"name": name, "annotations": {MODE: "suspend"}},
        "spec": {
            "suspend": True,
            "completionMode": "Indexed",
            "parallelism": count,
            "completions": count,
            "template": {"spec": {**spec, "restartPolicy": "Never"}},
        },
    }
    cluster.box.client.create(jobs_path(cluster), body)


def get_job(cluster: Cluster, name: str) -> dict[str, Any]:
    return cluster.box.client.get(f"{jobs_path(cluster)}/{name}")


def koord(cluster: Cluster, *words: str) -> str:
    """Return what a command prints, without line breaks."""
    options = ["--kubeconfig", str(cluster.box.kubeconfig), "-n", cluster.namespace]
    return " ".join(
        CliRunner().invoke(app, [*words, *options], catch_exceptions=False).output.split()
    )


def test_job_waits_without_pods_and_starts_when_there_is_room(resuming: Cluster) -> None:
    resuming.add_nodes(2)
    resuming.pod("first", gpus=8)
    resuming.expect_bound("first")
    submit(resuming, "train", 4, gpus=4)
    resuming.expect(
        lambda: resuming.condition(get_job(resuming, "train"), PLACED)[1] == "InsufficientNodes",
        "the Job says why it waits",
    )
    assert set(resuming.pods()) == {"first"}
    assert get_job(resuming, "train")["spec"]["suspend"] is True

    ask = ("explain", "job/train")
    resuming.expect(lambda: "suspended until" in koord(resuming, *ask), "the report of the leader")
    shown = koord(resuming, *ask)
    assert "Room for 2 of 4 pods" in shown, shown
    assert "kubectl patch" not in shown
    assert f"{resuming.namespace}/job/train" in koord(resuming, "queue")

    with pytest.raises(KubectlError, match="only suspend and resume"):
        resuming.box.kubectl(*PATCH, "-n", resuming.namespace, "-p", '{"spec":{"parallelism":1}}')

    resuming.delete_pod("first")
    resuming.expect(lambda: len(resuming.bound()) == 4, "all pods of the Job have nodes")
    assert get_job(resuming, "train")["spec"]["suspend"] is False
    resuming.expect(
        lambda: HELD not in get_job(resuming, "train")["metadata"]["annotations"],
        "its hold is taken off",
    )
    resuming.expect(
        lambda: resuming.condition(get_job(resuming, "train"), PLACED)[1] == "Started",
        "the Job says that it has started",
    )


def test_without_its_rights_all_else_starts(quiet_cluster: Cluster, tmp_path: Path) -> None:
    """The setting is on, and the overlay that lets the operators read Jobs is not applied."""
    running = Operators(quiet_cluster.box, tmp_path, settings=SETTINGS)
    cluster = Cluster(quiet_cluster.box, running, quiet_cluster.namespace)
    running.start()
    try:
        cluster.add_nodes(1)
        cluster.pod("first", gpus=1)
        cluster.expect_bound("first")
        assert "rights are missing" in running.read_log()
    finally:
        with suppress(SandboxApiError):
            cluster.delete_pod("first")
        cluster.remove_nodes()
        running.stop()
