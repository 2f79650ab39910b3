"""`koord explain` against a real API server, as users with different rights."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import IO, Any

import networkx as nx
import pytest
import yaml
from typer.testing import CliRunner, Result

from koord.cli.main import app
from koord_sandbox import Sandbox

GATE = {"name": "operators.koordinator.sh/placement"}
GROUP_LABEL = "pod-group.scheduling.sigs.k8s.io"
PLACED = "operators.koordinator.sh/Placed"
POOL = "tests.example/pool"

pytestmark = pytest.mark.sandbox


@pytest.fixture(scope="module")
def pool(sandbox: Sandbox) -> Iterator[list[str]]:
    """Three nodes with 8 GPUs that only these tests select; the last one is tainted."""
    sandbox.apply("crds")
    names = sandbox.add_nodes(3, "a100x8")
    for name in names:
        sandbox.client.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": {POOL: "explain"}}})
    taint = {"key": "team", "value": "b", "effect": "NoSchedule"}
    sandbox.client.patch(f"/api/v1/nodes/{names[2]}", {"spec": {"taints": [taint]}})
    yield names
    for name in names:
        sandbox.client.delete(f"/api/v1/nodes/{name}")


@pytest.fixture
def create(sandbox: Sandbox, namespace: str, pool: list[str]) -> Callable[..., None]:
    def create(
        name: str,
        *,
        gang: str = "",
        gpus: int = 1,
        annotations: dict[str, str] | None = None,
        **spec: Any,
    ) -> None:
        resources = {"limits": {"nvidia.com/gpu": str(gpus)}}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "labels": {GROUP_LABEL: gang} if gang else {},
                "annotations": annotations or {},
            },
            "spec": {
                "schedulerName": "koord-scheduler",
                "schedulingGates": [GATE],
                "nodeSelector": {POOL: "explain"},
                "containers": [{"name": "c", "image": "busybox", "resources": resources}],
                **spec,
            },
        }
        sandbox.client.create(f"/api/v1/namespaces/{namespace}/pods", pod)

    return create


@pytest.fixture
def create_group(sandbox: Sandbox, namespace: str, pool: list[str]) -> Callable[..., None]:
    def create_group(name: str, min_member: int) -> None:
        group = {
            "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
            "kind": "PodGroup",
            "metadata": {"name": name},
            "spec": {"minMember": min_member},
        }
        path = f"/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{namespace}/podgroups"
        sandbox.client.create(path, group)

    return create_group


def explain(*arguments: str, kubeconfig: object) -> Result:
    return CliRunner().invoke(app, ["explain", *arguments, f"--kubeconfig={kubeconfig}"])


@pytest.fixture
def ask(sandbox: Sandbox, namespace: str) -> Callable[..., dict[str, Any]]:
    """Asks as the administrator, and expects an answer."""

    def ask(*arguments: str, kubeconfig: object = sandbox.kubeconfig) -> dict[str, Any]:
        done = explain(*arguments, "-n", namespace, "--output", "json", kubeconfig=kubeconfig)
        assert done.exit_code == 0, done.stderr
        return json.loads(done.stdout)

    return ask


def test_a_pod_waits_for_members(create, create_group, ask, namespace) -> None:
    create_group("train", 2)
    create("w-0", gang="train")
    answer = ask("pod", "w-0")
    assert (answer["standing"], answer["reason"]["code"]) == ("Waiting", "MissingMembers")
    assert answer["reported"] is None
    assert answer["since"].endswith("Z")
    create("w-1", gang="train")
    assert ask("pod/w-0")["standing"] == "Placeable"
    (count,) = ask("pg", "train")["gang"]["group"]
    assert count["gang"] == f"{namespace}/train"
    assert (count["present"], count["minMember"]) == (2, 2)


def test_a_gang_is_too_large(create, create_group, ask, pool) -> None:
    create_group("large", 3)
    for i in range(3):
        create(f"w-{i}", gang="large", gpus=8)
    answer = ask("podgroup", "large")
    assert answer["reason"]["code"] == "InsufficientNodes"
    fields = answer["reason"]["fields"]
    assert (fields["want"], fields["fit"], fields["moreNodes"]) == (3, 2, 1)
    nodes = {node["node"]: node for node in answer["offers"][0]["nodes"]}
    assert [nodes[name]["pods"] for name in pool] == [1, 1, 0]
    assert nodes[pool[2]]["detail"] == "team: b"
    assert f"({pool[2]})" in answer["advice"][0]


def test_the_reported_condition_is_shown(create, create_group, ask, sandbox, namespace) -> None:
    create_group("said", 2)
    create("w-0", gang="said")
    condition = {
        "type": PLACED,
        "status": "False",
        "reason": "Backoff",
        "message": "so they said",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    path = f"/api/v1/namespaces/{namespace}/pods/w-0/status"
    sandbox.client.patch(path, {"status": {"conditions": [condition]}})
    group = {**condition, "type": "QuorumReached", "reason": "MissingMembers"}
    path = f"/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{namespace}/podgroups/said/status"
    sandbox.client.patch(path, {"status": {"conditions": [group]}})
    for target, reason in (("pod/w-0", "Backoff"), ("pg/said", "MissingMembers")):
        answer = ask(target)
        assert answer["since"] == "2026-01-01T00:00:00Z"
        reported = answer["reported"]
        assert (reported["reason"], reported["message"]) == (reason, "so they said")


def test_a_bound_pod(create, ask, sandbox, namespace, pool) -> None:
    create("bound", schedulingGates=[])
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "bound"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": pool[0]},
    }
    sandbox.client.create(f"/api/v1/namespaces/{namespace}/pods/bound/binding", binding)
    answer = ask("pod", "bound")
    assert answer["standing"] == "Bound"
    assert answer["place"]["node"] == pool[0]
    assert answer["since"] is not None


def test_a_foreign_pod(create, sandbox, namespace) -> None:
    create("theirs", schedulerName="somebody", schedulingGates=[])
    done = explain("pod", f"{namespace}/theirs", kubeconfig=sandbox.kubeconfig)
    assert done.exit_code == 0
    assert "NotOurs" in done.stdout
    assert "so somebody places it" in done.stdout
    assert "schedulerName: koord-scheduler" in done.stdout


def test_what_a_pod_says_wrongly_to_the_agent_of_its_node(create, ask) -> None:
    create("loud", annotations={"koordinator.sh/cpuQOS": '{"groupIdentity":9}'})
    (advice,) = [text for text in ask("pod", "loud")["advice"] if "cpuQOS" in text]
    assert advice.startswith("metadata.annotations[koordinator.sh/cpuQOS].groupIdentity: 9: ")


def test_a_missing_pod_is_a_usage_error_with_similar_names(create, sandbox, namespace) -> None:
    create("worker-0")
    done = explain("pod", f"{namespace}/worker0", kubeconfig=sandbox.kubeconfig)
    assert (done.exit_code, done.stdout) == (2, "")
    assert (
        f"there is no Pod worker0 in namespace {namespace}; did you mean worker-0?" in done.stderr
    )
    done = explain("pg", f"{namespace}/nothing", kubeconfig=sandbox.kubeconfig)
    assert (done.exit_code, done.stdout) == (2, "")


def test_the_namespace_of_the_context_is_the_default(create, sandbox, namespace, tmp_path) -> None:
    create("here")
    config = yaml.safe_load(sandbox.kubeconfig.read_text("utf-8"))
    config["contexts"][0]["context"]["namespace"] = namespace
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config), "utf-8")
    done = explain("pod", "here", kubeconfig=path)
    assert done.exit_code == 0
    assert f"Pod {namespace}/here Placeable" in done.stdout


# Rights

LIST_ALL = {"apiGroups": ["", "scheduling.sigs.k8s.io"], "verbs": ["list"]}
RBAC = "/apis/rbac.authorization.k8s.io/v1"


@pytest.fixture
def user(sandbox: Sandbox, namespace: str) -> Iterator[Callable[..., object]]:
    """Makes a user who may list these resources, in the namespace or everywhere."""
    made: list[str] = []

    def make(*resources: str, everywhere: bool) -> object:
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "somebody"}}
        sandbox.client.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", account)
        scope = "" if everywhere else f"/namespaces/{namespace}"
        kind, plural = ("ClusterRole", "clusterroles") if everywhere else ("Role", "roles")
        name = f"explain-{namespace}"
        meta = {"metadata": {"name": name}}
        if resources:
            rules = [{**LIST_ALL, "resources": list(resources)}]
            role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "rules": rules}
            sandbox.client.create(f"{RBAC}{scope}/{plural}", {**role, **meta})
            binding = {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": f"{kind}Binding",
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": kind,
                    "name": name,
                },
                "subjects": [
                    {"kind": "ServiceAccount", "name": "somebody", "namespace": namespace}
                ],
            }
            bindings = f"{RBAC}{scope}/{kind.lower()}bindings"
            sandbox.client.create(bindings, {**binding, **meta})
            made.extend([f"{bindings}/{name}", f"{RBAC}{scope}/{plural}/{name}"])
        return sandbox.kubeconfig_for(namespace, "somebody")

    yield make
    for path in made:
        sandbox.client.delete(path)


def test_without_any_right_nothing_is_explained(create, user, namespace) -> None:
    create("w-0")
    done = explain("pod", f"{namespace}/w-0", kubeconfig=user(everywhere=True))
    assert (done.exit_code, done.stdout) == (3, "")
    assert f"you may not list pods, not even in namespace {namespace}" in done.stderr
    assert "koord-user" in done.stderr


def test_without_the_right_to_list_nodes(create, create_group, user, ask, namespace) -> None:
    kubeconfig = user("pods", "podgroups", "elasticquotas", everywhere=True)
    create("alone")
    answer = ask("pod", "alone", kubeconfig=kubeconfig)
    assert (answer["standing"], answer["reason"], answer["offers"]) == ("Waiting", None, [])
    (warning,) = answer["warnings"]
    assert "you may not list nodes" in warning
    create_group("train", 2)
    create("w-0", gang="train")
    assert ask("pg", "train", kubeconfig=kubeconfig)["reason"]["code"] == "MissingMembers"
    done = explain("pod", f"{namespace}/alone", kubeconfig=kubeconfig)
    assert warning in done.stderr
    assert "The reason is not known from here." in done.stdout


def test_with_the_rights_of_one_namespace(create, create_group, user, ask, namespace) -> None:
    kubeconfig = user("pods", "podgroups", everywhere=False)
    create_group("train", 2)
    create("w-0", gang="train")
    answer = ask("pod", "w-0", kubeconfig=kubeconfig)
    assert answer["reason"]["code"] == "MissingMembers"
    (warning,) = answer["warnings"]
    assert warning.startswith(f"you may read namespace {namespace} only (")


def test_without_the_right_to_list_podgroups(create, user, ask) -> None:
    kubeconfig = user("pods", "nodes", everywhere=True)
    create("w-0", gang="train")
    answer = ask("pod", "w-0", kubeconfig=kubeconfig)
    assert answer["reason"] is None
    assert "you may not list podgroups" in answer["warnings"][0]
    create("single")
    assert ask("pod", "single", kubeconfig=kubeconfig)["standing"] == "Placeable"


def test_with_the_role_edit_of_one_namespace(create, sandbox, namespace, user) -> None:
    """It gives no right to anything of ours, nor to nodes: the conditions of pods remain."""
    kubeconfig = user(everywhere=False)
    binding = {
        "metadata": {"name": "edit"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"kind": "ServiceAccount", "name": "somebody", "namespace": namespace}],
    }
    sandbox.client.create(f"{RBAC}/namespaces/{namespace}/rolebindings", binding)
    create("w-0")
    condition = {"type": PLACED, "status": "False", "reason": "X", "message": "as they said"}
    path = f"/api/v1/namespaces/{namespace}/pods/w-0/status"
    sandbox.client.patch(path, {"status": {"conditions": [condition]}})

    def run(*words: str) -> Result:
        return CliRunner().invoke(app, [*words, f"--kubeconfig={kubeconfig}"])

    answer = run("explain", "pod/w-0", "-n", namespace)
    assert answer.stdout.splitlines()[1] == "  as they said"
    row = run("queue", "-n", namespace).stdout.splitlines()[1].split()
    assert row[0] == f"pod/{namespace}/w-0"
    assert "X" in row
    for words in ("queue", "watch", "quota tree", "top", "status"):
        done = run(*words.split())
        assert "koord-user" in done.output
        assert "403" not in done.output


def test_an_invalid_token_is_an_error(sandbox, namespace, tmp_path) -> None:
    config = yaml.safe_load(sandbox.kubeconfig.read_text("utf-8"))
    config["users"][0]["user"] = {"token": "nonsense"}
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config), "utf-8")
    done = explain("pod", f"{namespace}/w-0", kubeconfig=path)
    assert (done.exit_code, done.stdout) == (3, "")
    assert "401" in done.stderr


# The command line


@pytest.mark.parametrize("command", [["explain", "pod", "x"], ["version", "--server"]])
def test_an_unreachable_cluster_is_an_error(command, sandbox, tmp_path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        server = f"https://127.0.0.1:{probe.getsockname()[1]}"
    config = yaml.safe_load(sandbox.kubeconfig.read_text("utf-8"))
    config["clusters"][0]["cluster"]["server"] = server
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config), "utf-8")
    done = CliRunner().invoke(app, [*command, f"--kubeconfig={path}"])
    assert done.exit_code == 3
    assert f"the cluster at {server} does not answer" in done.stderr


def test_the_version_of_the_server(sandbox) -> None:
    done = CliRunner().invoke(app, ["version", "--server", f"--kubeconfig={sandbox.kubeconfig}"])
    assert done.exit_code == 0
    assert done.stdout.splitlines()[2].startswith("Kubernetes v1.")


def test_names_are_completed(create, create_group, sandbox, namespace, monkeypatch) -> None:
    create_group("train", 2)
    create("worker-0")
    create("worker-1")
    create("other")
    monkeypatch.setenv("KUBECONFIG", str(sandbox.kubeconfig))
    assert complete("explain", "pod", f"{namespace}/wo") == [
        f"{namespace}/worker-0",
        f"{namespace}/worker-1",
    ]
    assert complete("explain", "pg", "-n", namespace, "") == ["train"]
    assert complete("explain", "-n", namespace, "pg/tr") == ["pg/train"]
    assert complete("explain", "pod", "-n", namespace[:-1]) == [namespace]
    assert complete("queue", "-n", "kube-sys") == ["kube-system"]


def test_nothing_is_completed_without_a_server(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "missing"))
    assert complete("queue", "-n", "kube") == []
    assert complete("explain", "nonsense", "a") == []


def complete(*typed: str) -> list[str]:
    variables = {
        "_KOORD_COMPLETE": "complete_fish",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "_TYPER_COMPLETE_ARGS": " ".join(["koord", *typed]),
    }
    done = CliRunner().invoke(app, env=variables, prog_name="koord")
    return done.stdout.split()


def test_a_topology_is_written_as_a_graph(sandbox: Sandbox, pool: list[str]) -> None:
    layers = [
        {"topologyLayer": "SpineLayer", "labelKey": ["tests.example/spine"]},
        {
            "topologyLayer": "NodeTopologyLayer",
            "parentTopologyLayer": "SpineLayer",
            "labelKey": ["kubernetes.io/hostname"],
        },
    ]
    path = "/apis/scheduling.koordinator.sh/v1alpha1/clusternetworktopologies"
    sandbox.client.create(
        path,
        {
            "apiVersion": "scheduling.koordinator.sh/v1alpha1",
            "kind": "ClusterNetworkTopology",
            "metadata": {"name": "drawn"},
            "spec": {"networkTopologySpec": layers},
        },
    )
    labels = {"metadata": {"labels": {"tests.example/spine": "s1"}}}
    sandbox.client.patch(f"/api/v1/nodes/{pool[0]}", labels)
    arguments = ["topology", "drawn", f"--kubeconfig={sandbox.kubeconfig}", "--output"]
    dot = CliRunner().invoke(app, [*arguments, "dot"])
    assert dot.exit_code == 0, dot.stderr
    assert "SpineLayer s1\\n1 node\\nfree: " in dot.stdout
    graph = nx.parse_graphml(CliRunner().invoke(app, [*arguments, "graphml"]).stdout)
    assert graph.nodes["/s1"]["allocatable nvidia.com/gpu"] == "8"
    sandbox.client.delete(f"{path}/drawn")


def test_watch_shows_the_queue_again_when_it_changes(
    sandbox: Sandbox, create: Callable[..., None], namespace: str
) -> None:
    command = [sys.executable, "-c", "from koord.cli.main import main; main()"]
    options = [
        "queue",
        "-n",
        namespace,
        "-o",
        "json",
        "--watch",
        f"--kubeconfig={sandbox.kubeconfig}",
    ]
    with subprocess.Popen(
        [*command, *options],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=accept_interrupts,  # noqa: PLW1509 - there are no threads here
    ) as watching:
        assert watching.stdout is not None
        try:
            assert json.loads(read_document(watching.stdout))["waiting"] == []
            create("one", gpus=9)
            (waiting,) = json.loads(read_document(watching.stdout))["waiting"]
            assert waiting["names"] == [f"{namespace}/one"]
        finally:
            watching.send_signal(signal.SIGINT)
    assert watching.returncode == 0


def accept_interrupts() -> None:
    """Undo what a shell does to the jobs that it starts in the background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def read_document(stream: IO[str]) -> str:
    """Return the next document of a stream of JSON, which ends with a line with a bracket."""
    lines = []
    for line in stream:
        lines.append(line)
        if line.startswith("}"):
            break
    return "".join(lines)
