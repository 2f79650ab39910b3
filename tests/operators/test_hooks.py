"""The example of a quota hook, installed for running operators."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.operators.conftest import ROOT, Cluster
from tests.operators.test_quotas import Quotas
from tests.support.operators import KOORD, run_operators

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

EXAMPLE = ROOT / "examples/quota-hook"
POINTS = "[koord.quota_hooks]\nlargest-unit = largest_unit:LargestUnit\nabsent = no_such_module:X\n"


def install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the module with its entry points."""
    info = folder / "hooks-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: hooks\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(POINTS)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(EXAMPLE), str(folder)]))


def ask(cluster: Cluster, command: list[str]) -> str:
    """Return the output of ``koord``."""
    kubeconfig = ["--kubeconfig", str(cluster.box.kubeconfig)]
    done = subprocess.run(
        [sys.executable, "-m", "koord", *command, *kubeconfig],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return " ".join(f"{done.stdout} {done.stderr}".split())


def test_pod_refused_by_a_hook_waits_and_a_failing_hook_is_reported(
    quiet_cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, quotas = quiet_cluster, Quotas(quiet_cluster)
    install(tmp_path, monkeypatch)
    quotas.create("team", 0, 32)
    cluster.add_nodes(4)
    kubeconfig = cluster.box.kubeconfig_for("koord-system", "koord-operators")
    with run_operators(kubeconfig, tmp_path, koord=KOORD) as operators:
        cluster.gang("large", 3, labels=quotas.label("team"))
        cluster.gang("small", 2, gpus=4, labels=quotas.label("team"))
        cluster.expect_bound("small-0", "small-1")
        cluster.expect_group("large", "QuotaCheckFailed")
        assert "hook plugin largest-unit" in cluster.group_message("large")
        cluster.expect(
            lambda: cluster.condition(quotas.get("team"), "HookFailed")[0] == "True", "it is named"
        )
        quota = quotas.get("team")
        assert "hook absent failed in load" in cluster.condition(quota, "HookFailed")[2]
        assert cluster.condition(quota, "example.com/LargestUnit")[1] == "HalfOfMax"
        asked = ["--pods", "3", "--request", "nvidia.com/gpu=8"]
        command = ["quota", "what-if", quotas.name("team"), *asked]
        told = ask(cluster, command)
        assert "would wait: QuotaCheckFailed" in told, "it is asked here as well"
        assert "hook absent fails here" in told
        monkeypatch.delenv("PYTHONPATH")
        told = ask(cluster, command)
        assert "would start now" in told
        assert "whether they refuse anything is not known" in told
        _, text = operators.get("/metrics")
        assert 'koord_quota_hook_failures_total{hook="absent",operation="load"} 1.0' in text
    assert "large-0" not in cluster.bound()
