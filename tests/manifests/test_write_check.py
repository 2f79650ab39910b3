"""``koord run`` beside the shipped manifests, as somebody who is not their ServiceAccount."""

import json
import os
import secrets
import subprocess
from pathlib import Path

import pytest
from tests.manifests.conftest import MANIFESTS
from tests.manifests.waiting import wait_for
from tests.support.forked_koord import find_koord
from tests.support.operators import RunningOperators, run_operators, wait_until_ready

from koord.runtime.registry import OPERATORS

pytestmark = pytest.mark.sandbox


def koord(kubeconfig: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"KUBECONFIG": str(kubeconfig)}
    command = [find_koord(), *arguments]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def test_an_administrator_is_told_how_to_become_the_operators(guarded, tmp_path):
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_bytes(guarded.kubeconfig.read_bytes())
    done = koord(kubeconfig, "run", "--http-address", "127.0.0.1:0")
    assert done.returncode == 2
    assert "koord-protect" in done.stderr
    commands = [line.strip() for line in done.stderr.splitlines() if line.startswith("  ")]
    assert commands[-1] == "koord run --context koord-operators"
    kubectl = guarded.record.programs["kubectl"].path
    script = "\n".join(commands[:-1]).replace("kubectl ", f"{kubectl} ")
    environment = os.environ | {"KUBECONFIG": str(kubeconfig)}
    subprocess.run(["bash", "-euc", script], env=environment, check=True, capture_output=True)
    with run_operators(kubeconfig, tmp_path, "--context=koord-operators"):
        pass


def test_somebody_who_may_not_place_is_told_so(guarded):
    guarded.kubectl("create", "serviceaccount", "nobody", "--namespace=koord-system")
    done = koord(guarded.kubeconfig_for("koord-system", "nobody"), "run", "--operator=placement")
    assert done.returncode == 2
    assert "create pods/binding" in done.stderr


def test_status_is_not_well_while_writes_are_refused(guarded, tmp_path):
    """Somebody with all rights of the operators, whom the policy does not name."""
    # Separate operators may have run here before, and status would miss their leader.
    guarded.kubectl("delete", "leases", "--all", "--namespace=koord-system")
    there = ("--serviceaccount=koord-system:other", "--namespace=koord-system")
    guarded.kubectl("create", "serviceaccount", "other", "--namespace=koord-system")
    guarded.kubectl("create", "rolebinding", "other", "--role=koord-operators", *there)
    for name in (*OPERATORS, "eviction"):
        role = f"--clusterrole=koord-{name}"
        guarded.kubectl("create", "clusterrolebinding", f"other-{name}", role, *there)
    namespace = f"test-{secrets.token_hex(3)}"
    guarded.create_namespace(namespace)
    guarded.add_nodes(1, "a100x8")
    pod = {
        "metadata": {"name": "p"},
        "spec": {
            "schedulerName": "koord-scheduler",
            "schedulingGates": [{"name": "operators.koordinator.sh/placement"}],
            "containers": [{"name": "c", "image": "x"}],
        },
    }
    with run_operators(guarded.kubeconfig_for("koord-system", "other"), tmp_path):
        status = ("status", "--exit-code")
        wait_for(lambda: koord(guarded.kubeconfig, *status).returncode == 0, "all is well")
        guarded.client.create(f"/api/v1/namespaces/{namespace}/pods", pod)
        wait_for(lambda: koord(guarded.kubeconfig, *status).returncode == 1, "writes are refused")
        shown = koord(guarded.kubeconfig, "status", "-o", "json").stdout
        (leader,) = json.loads(shown)["leaders"]
        assert any(
            one.startswith("patch pods: ") and "koord-protect" in one for one in leader["refused"]
        )


def test_a_missing_key_is_said_with_the_command_that_makes_it(guarded, tmp_path):
    """The operators may not make Secrets: whoever installs them does."""
    guarded.kubectl("delete", "secret", "koord-plan-key", "--namespace=koord-system")
    guarded.kubectl("delete", "leases", "--all", "--namespace=koord-system")
    kubeconfig = guarded.kubeconfig_for("koord-system", "koord-operators")
    with run_operators(kubeconfig, tmp_path, gets_ready=False) as running:
        wait_for(
            lambda: "kubectl create secret" in read_readiness(running), "it says what it lacks"
        )
        assert "kubectl create secret" in running.read_log()
        said = koord(guarded.kubeconfig, "status").stderr
        command = " ".join(said.partition("kubectl ")[2].split()).split()
        assert command[:2] == ["create", "secret"]
        guarded.kubectl(*command)
        wait_until_ready(running)
        assert "koord-plan-key" not in koord(guarded.kubeconfig, "status").stderr


@pytest.mark.parametrize("reclaim", ["false", "true"])
def test_the_right_to_evict_is_missed_where_settings_need_it(guarded, tmp_path, reclaim):
    overlay, status = str(MANIFESTS / "overlays/eviction"), ("status", "--exit-code")
    guarded.kubectl("delete", "-k", overlay)
    guarded.kubectl("delete", "leases", "--all", "--namespace=koord-system")
    kubeconfig = guarded.kubeconfig_for("koord-system", "koord-operators")
    code = int(reclaim == "true")
    try:
        with run_operators(
            kubeconfig, tmp_path, settings=f"elasticQuota: {{reclaim: {reclaim}}}\n"
        ):
            wait_for(lambda: has_version(guarded), "the leader reports")
            done = koord(guarded.kubeconfig, *status)
    finally:
        guarded.kubectl("apply", "-k", overlay)
    assert done.returncode == code, done.stdout
    command = "kubectl apply -k manifests/overlays/eviction"
    assert (command in " ".join(done.stdout.split())) is bool(code)


def has_version(box) -> bool:
    leaders = json.loads(koord(box.kubeconfig, "status", "-o", "json").stdout)["leaders"]
    return any(one["version"] for one in leaders)


def read_readiness(running: RunningOperators) -> str:
    try:
        return running.get("/readyz")[1]
    except OSError:
        return ""
