"""`koord lint` finds mistakes in files: in single objects, and in what they say of each other."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from koord.api.lint_capacity import find_capacity_problems
from koord.api.lint_files import ClusterFacts, Quota
from koord.api.lint_relations import find_parent_problems, find_relation_problems
from koord.api.manifest_text import read_documents
from koord.cli.main import app

GPU = "nvidia.com/gpu"
SAMPLES = Path(__file__).parents[1] / "api" / "samples"


def run(*arguments: object, text: str = "") -> tuple[int, str]:
    result = CliRunner().invoke(app, ["lint", *map(str, arguments)], input=text)
    return result.exit_code, result.output


def test_it_prints_only_the_count_for_valid_files() -> None:
    code, output = run(*sorted(SAMPLES.glob("device-*.yaml")))

    assert code == 0
    assert output.endswith(" checked, 0 problems\n")
    assert output.count("\n") == 1


def test_it_names_file_object_field_value_and_fix() -> None:
    path = SAMPLES / "invalid" / "wrong-api-version.yaml"

    code, output = run(path)

    assert code == 1
    assert output == (
        f'{path}: PodGroup default/pod-group-a: apiVersion: "v1alpha1": '
        "must be scheduling.sigs.k8s.io/v1alpha1 for kind PodGroup\n"
        "1 object checked, 1 problem\n"
    )


@pytest.mark.parametrize("content", [b"a: [", b"\xff\xfe", None])
def test_it_fails_on_unreadable_files(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "file.yaml"
    if content is not None:
        path.write_bytes(content)

    code, output = run(path)

    assert code == 2
    assert str(path) in output


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ("- a\n", "document 1: is not a Kubernetes object"),
        ("kind: Pod\nmetadata: {name: p, labels: {a: 5}}\n", "Pod p: metadata.labels.a: 5: "),
        ("kind: PodGroup\napiVersion: scheduling.volcano.sh/v1beta1\n", "0 problems"),
        ("kind: [1]\nmetadata: 3\n", "metadata: 3: must be a mapping"),
        ("a: 1\n", "0 problems"),
    ],
)
def test_it_accepts_any_document(tmp_path: Path, document: str, expected: str) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(document)

    assert expected in run(path)[1]


GROUP = """
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: PodGroup
metadata: {name: bert}
spec: {minMember: 4}
---
"""
JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: bert}
spec:
  parallelism: PODS
  template:
    metadata:
      labels:
        pod-group.scheduling.sigs.k8s.io: GANG
        quota.scheduling.koordinator.sh/name: team
    spec:
      schedulerName: koord-scheduler
      schedulingGates: [{name: GATE}]
---
"""
QUOTA = """
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: ElasticQuota
metadata: {name: NAME}
spec: {min: {MINIMUM: 4}, max: {nvidia.com/gpu: 8}}
"""


def make(
    pods: int = 4,
    gang: str = "bert",
    gate: str = "operators.koordinator.sh/placement",
    quota: str = "team",
    minimum: str = "nvidia.com/gpu",
) -> str:
    job = JOB.replace("PODS", str(pods)).replace("GANG", gang).replace("GATE", gate)
    return GROUP + job + QUOTA.replace("NAME", quota).replace("MINIMUM", minimum)


def test_files_that_belong_together_have_no_problem() -> None:
    assert run("-", text=make()) == (0, "3 objects checked, 0 problems\n")


@pytest.mark.parametrize(
    ("mistake", "says"),
    [
        ({"gate": "operators.koordinator.sh/placment"}, "nobody removes this gate. Did you mean"),
        ({"gang": "brt"}, "no such PodGroup in these files. Did you mean bert?"),
        ({"pods": 3}, "only 3 pods of these files join it"),
        ({"quota": "teams"}, "there is no such quota. Did you mean teams?"),
        ({"minimum": "cpu"}, "is in min and not in max"),
    ],
)
def test_mistakes_between_objects_are_found(mistake: dict[str, str], says: str) -> None:
    code, output = run("-", text=make(**mistake))
    assert code == 1
    assert says in output


@pytest.mark.parametrize(
    ("completions", "says"),
    [
        (4, ""),
        (8, ""),
        (
            5,
            "spec.completions: 5: with 4 at once, the last 1 are less than minMember, 4: ",
        ),
        (11, "the last 3 are less"),
        (3, "only 3 pods of these files join it"),
    ],
)
def test_waves_that_are_no_gang_are_found(completions: int, says: str) -> None:
    waves = f"completions: {completions}\n  parallelism"
    code, output = run("-", text=make().replace("parallelism", waves))
    assert (code, bool(says)) in {(0, False), (1, True)}
    assert says in output


JOBS = {
    "Job": "spec: SPEC",
    "CronJob": "spec: {jobTemplate: {spec: SPEC}}",
    "JobSet": "spec: {replicatedJobs: [{name: a, template: {spec: SPEC}}]}",
}
IGNORES = (
    "podFailurePolicy: {rules: [{action: Ignore, onPodConditions: [{type: DisruptionTarget}]}]}"
)


@pytest.mark.parametrize("kind", JOBS)
@pytest.mark.parametrize(
    ("more", "restarts", "scheduler", "says"),
    [
        ("", "Never", "koord-scheduler", "podFailurePolicy: is missing: a Job counts evicted pods"),
        ("", "OnFailure", "koord-scheduler", "restartPolicy: OnFailure: with another value than"),
        (IGNORES, "Never", "koord-scheduler", ""),
        ("", "Never", "injected", "podFailurePolicy: is missing"),
        ("", "Never", "default-scheduler", ""),
    ],
)
def test_a_job_that_does_not_survive_its_first_preemption_gets_a_note(
    kind: str, more: str, restarts: str, scheduler: str, says: str
) -> None:
    labels = "quota.scheduling.koordinator.sh/name: team" if scheduler == "injected" else ""
    pod = f"{{restartPolicy: {restarts}, schedulerName: {scheduler}}}"
    pods = f"{{metadata: {{labels: {{{labels}}}}}, spec: {pod}}}"
    spec = f"{{template: {pods}{', ' if more else ''}{more}}}"
    text = f"apiVersion: batch/v1\nkind: {kind}\nmetadata: {{name: j}}\n"
    code, output = run("-", text=text + JOBS[kind].replace("SPEC", spec))
    assert code == 0, "it is no mistake"
    assert says in output
    assert output.startswith("note: ") is bool(says)
    assert output.endswith("1 object checked, 0 problems\n")


@pytest.mark.parametrize(
    ("kind", "specs", "policy", "says"),
    [
        ("kubeflow.org/v1 PyTorchJob", "pytorchReplicaSpecs", "Never", "restartPolicy: Never: the"),
        ("kubeflow.org/v1 PyTorchJob", "pytorchReplicaSpecs", "OnFailure", ""),
        ("kubeflow.org/v1 PyTorchJob", "pytorchReplicaSpecs", "", ""),
        ("kubeflow.org/v1 PaddleJob", "paddleReplicaSpecs", "Never", "restartPolicy: Never: the"),
        ("kubeflow.org/v1 JAXJob", "jaxReplicaSpecs", "", "is missing, which means Never: the job"),
        ("kubeflow.org/v1 TFJob", "tfReplicaSpecs", "OnFailure", "restartPolicy: OnFailure: the"),
        ("kubeflow.org/v1 TFJob", "tfReplicaSpecs", "", "is missing, which means Never: the job"),
        ("kubeflow.org/v1 TFJob", "tfReplicaSpecs", "ExitCode", ""),
        ("kubeflow.org/v1 XGBoostJob", "xgbReplicaSpecs", "ExitCode", ""),
        ("training.kubedl.io/v1alpha1 PyTorchJob", "pytorchReplicaSpecs", "Always", "set ExitCode"),
        ("training.kubedl.io/v1alpha1 PyTorchJob", "pytorchReplicaSpecs", "ExitCode", ""),
        ("other.io/v1 PyTorchJob", "pytorchReplicaSpecs", "Never", ""),
    ],
)
def test_roles_of_which_one_evicted_pod_ends_the_job_get_a_note(
    kind: str, specs: str, policy: str, says: str
) -> None:
    version, name = kind.split()
    role = {
        "replicas": 1,
        "template": {"spec": {"schedulerName": "koord-scheduler", "containers": []}},
        **({"restartPolicy": policy} if policy else {}),
    }
    text = json.dumps(
        {
            "apiVersion": version,
            "kind": name,
            "metadata": {"name": "j"},
            "spec": {specs: {"Worker": role, "Broken": None}},
        }
    )
    code, output = run("-", text=text)
    assert code == 0, "it is no mistake"
    assert says in output
    assert output.startswith(f"note: -: {name} j: spec.{specs}.Worker.restartPolicy") is bool(says)


def test_what_the_cluster_has_is_not_missing() -> None:
    labels = {
        "pod-group.scheduling.sigs.k8s.io": "there",
        "quota.scheduling.koordinator.sh/name": "team",
    }
    pod = {"kind": "Pod", "metadata": {"name": "p", "labels": labels}}
    facts = ClusterFacts(frozenset({("ns", "there")}), frozenset({"team"}), default_namespace="ns")
    assert list(find_relation_problems([pod], facts)) == []
    facts = ClusterFacts(
        frozenset({("other", "there")}), frozenset({"team"}), default_namespace="ns"
    )
    ((_, problem),) = find_relation_problems([pod], facts)
    assert "in the cluster" in problem.message


def test_output_for_programs() -> None:
    code, output = run("-", "-o", "json", text=make(pods=3))
    assert (code, json.loads(output)["problems"][0]["object"]) == (1, "PodGroup bert")


QUOTA_IN_TREE = """
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: ElasticQuota
metadata: {{name: {name}, labels: {{quota.scheduling.koordinator.sh/parent: {parent}}}}}
spec: {{min: {{cpu: 1}}, max: {{cpu: 2}}}}
---
"""


def test_a_parent_that_no_file_has_is_a_note_without_a_cluster() -> None:
    text = QUOTA_IN_TREE.format(name="research", parent="koordinator-root-quota")
    text += QUOTA_IN_TREE.format(name="vision", parent="reserch")
    code, output = run("-", text=text)
    assert code == 0
    assert output == (
        "note: -: ElasticQuota vision: metadata.labels[quota.scheduling.koordinator.sh/parent]: "
        "reserch: there is no such quota in these files. Did you mean research? (--server looks in "
        "the cluster)\n2 objects checked, 0 problems\n"
    )


def test_a_parent_that_the_cluster_lacks_is_a_problem() -> None:
    labels = {"quota.scheduling.koordinator.sh/parent": "reserch"}
    document = {"kind": "ElasticQuota", "metadata": {"name": "vision", "labels": labels}}
    facts = ClusterFacts(quotas=frozenset({"research"}))
    ((_, problem),) = find_parent_problems([document], facts)
    assert problem.message.endswith("or in the cluster. Did you mean research?")
    assert not list(find_parent_problems([document], ClusterFacts(quotas=frozenset({"reserch"}))))


@pytest.mark.parametrize(
    ("where", "key", "says"),
    [
        ("labels", "allow-lent", "is unknown; quota.scheduling.koordinator.sh/allow-lent-resource"),
        ("labels", "allow-lend", "is unknown; quota.scheduling.koordinator.sh/allow-lent-resource"),
        ("labels", "allow-lend-resources", "allow-lent-resource may be meant"),
        ("annotations", "allow-lent-resource", "is a label, and has no effect as an annotation"),
        ("labels", "shared-weight", "is an annotation, and has no effect as a label"),
    ],
)
def test_misspelled_keys_of_quotas_are_found(where: str, key: str, says: str) -> None:
    meta = f'{{name: q, {where}: {{quota.scheduling.koordinator.sh/{key}: "false"}}}}'
    text = QUOTA.replace("{name: NAME}", meta).replace("MINIMUM", "nvidia.com/gpu")
    code, output = run("-", text=text)
    assert code == 1
    assert says in output


POD = """
apiVersion: v1
kind: Pod
metadata: {{name: p}}
spec:
  schedulerName: koord-scheduler
  containers: [{{name: c, resources: {{limits: {{{limits}}}}}}}]
"""


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        ("nvidia.com/gpus: 8", "is no known resource. Did you mean nvidia.com/gpu?"),
        ("nvidia.com/GPU: 8", "Did you mean nvidia.com/gpu?"),
        ("gpu: 8", "Did you mean nvidia.com/gpu?"),
        ("memroy: 8Gi", "Did you mean memory?"),
        ("koordinator.sh/gpu-core: 50", "add koordinator.sh/gpu-memory-ratio or koordinator.sh"),
        ("kubernetes.io/gpu-core: 50", "is no valid request alone"),
        ("kubernetes.io/batch-cpu: 200m", "200m: counts thousandths of a CPU: write 200 for 200m"),
        ("kubernetes.io/mid-cpu: '1.5'", "write 1500 for 1.5 of a CPU"),
        (
            "kubernetes.io/batch-memory: 256m",
            "counts bytes, which have no parts. Did you mean 256M",
        ),
    ],
)
def test_wrong_resources_of_pods_are_found(limits: str, says: str) -> None:
    code, output = run("-", text=POD.format(limits=limits))
    assert code == 1
    assert says in output
    assert "spec.containers[0].resources.limits" in output


@pytest.mark.parametrize(
    "limits",
    [
        "nvidia.com/gpu.shared: 1",
        "nvidia.com/mig-1g.5gb: 1",
        "hugepages-2Mi: 1Gi",
        "intel.com/gpu: 1",
        "koordinator.sh/gpu-core: 50, koordinator.sh/gpu-memory-ratio: 50",
        "koordinator.sh/gpu-core: 50, koordinator.sh/gpu-memory: 8Gi",
    ],
)
def test_resources_of_others_are_no_problem(limits: str) -> None:
    assert run("-", text=POD.format(limits=limits))[0] == 0


def test_whole_amounts_of_batch_resources_have_the_right_unit() -> None:
    _, output = run("-", text=POD.format(limits="kubernetes.io/batch-memory: 0.5Gi"))
    assert "counts" not in output


def test_wrong_resources_of_quotas_and_templates_are_found() -> None:
    limits = "resources: {limits: {nvidia.com/gpus: 1}}"
    job = JOB.replace("schedulerName:", f"containers: [{{{limits}}}]\n      schedulerName:")
    code, output = run("-", text=job + QUOTA.replace("MINIMUM", "nvidia.com/gpus"))
    assert code == 1
    assert "spec.template.spec.containers[0].resources.limits[nvidia.com/gpus]: 1: is no" in output
    assert "spec.min[nvidia.com/gpus]: 4: is no known resource" in output


def test_a_wrong_spec_hides_no_wrong_annotation() -> None:
    weight = 'annotations: {quota.scheduling.koordinator.sh/shared-weight: "{"}'
    text = QUOTA.replace("NAME", f"q, {weight}").replace("MINIMUM: 4", "nvidia.com/gpu: lots")
    code, output = run("-", text=text)
    assert code == 1
    assert "spec.min[nvidia.com/gpu]" in output
    assert "shared-weight]: {: is not JSON" in output


def test_folders_are_read(tmp_path: Path) -> None:
    (tmp_path / "teams" / "deep").mkdir(parents=True)
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "x.yaml").write_text("a: [")
    (tmp_path / "teams" / "a.yml").write_text(POD.format(limits="gpu: 1"))
    (tmp_path / "teams" / "deep" / "b.json").write_text('{\n\t"kind": "Pod"\n}')
    (tmp_path / "teams" / "notes.txt").write_text("a: [")
    code, output = run(tmp_path)
    assert code == 1
    assert output.startswith(f"{tmp_path}/teams/a.yml: Pod p: ")
    assert output.endswith("2 objects checked, 1 problem\n")


def test_what_cannot_be_read_is_told_plainly_and_the_rest_is_checked(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    code, output = run(tmp_path / "empty")
    assert (code, "has no files *.yaml, *.yml or *.json" in output) == (2, True)
    good = tmp_path / "pod.yaml"
    good.write_text(POD.format(limits="cpu: 1"))
    code, output = run(tmp_path / "gone.yaml", good)
    assert code == 2
    assert f"{tmp_path}/gone.yaml: there is no such file or folder\n" in output
    assert "1 object checked, 0 problems" in output


GPU_JOB = """
kind: Job
metadata: {name: j, namespace: NAMESPACE}
spec:
  parallelism: 4
  template:
    metadata: {labels: {LABELS}}
    spec:
      SPEC
      containers: [{name: c, image: x, resources: {limits: {nvidia.com/gpu: 8}}}]
"""
GATED = "schedulingGates: [{name: operators.koordinator.sh/placement}]"
GANG = "pod-group.scheduling.sigs.k8s.io: g"
PLAIN = ClusterFacts(default_namespace="team", injects=frozenset({"injected"}))


def look(text: str, facts: ClusterFacts | None = None) -> list[str]:
    return [
        problem.message for _, problem in find_capacity_problems(list(read_documents(text)), facts)
    ]


def gpu_job(spec: str = "restartPolicy: Never", labels: str = "", namespace: str = "team") -> str:
    made = GPU_JOB.replace("SPEC", spec).replace("LABELS", labels)
    return made.replace("NAMESPACE", namespace)


@pytest.mark.parametrize(
    ("text", "facts", "is_found"),
    [
        (gpu_job(), None, True),
        (gpu_job(GATED), None, False),
        (gpu_job("schedulerName: koord-scheduler"), None, False),
        (gpu_job("schedulerName: volcano"), None, False),
        (gpu_job(labels=GANG), None, False),  # the policy inject may add the gate
        (gpu_job(labels=GANG), PLAIN, True),
        (gpu_job(labels=GANG, namespace="injected"), PLAIN, False),
        (gpu_job().replace("nvidia.com/gpu: 8", "cpu: 8"), None, False),
        (gpu_job().replace("Job", "DaemonSet"), None, False),
    ],
)
def test_jobs_with_accelerators_opt_in(
    text: str,
    facts: ClusterFacts | None,
    is_found: bool,  # noqa: FBT001
) -> None:
    assert ["do not opt in" in message for message in look(text, facts)] == [True] * is_found


SPARK = """
apiVersion: sparkoperator.k8s.io/v1beta2
kind: SparkApplication
metadata: {name: etl}
spec:
  driver: {template: {metadata: {labels: {DRIVER}}, spec: {schedulerName: SCHEDULER}}}
  executor: {template: {metadata: {labels: {quota.scheduling.koordinator.sh/name: etl}}}}
"""


@pytest.mark.parametrize(
    ("driver", "scheduler", "says"),
    [
        ("", "koord-scheduler", "is missing: drivers start before their executors"),
        ("etl", "koord-scheduler", "etl: is that of the executors"),
        ("drivers", "koord-scheduler", ""),
        ("", "default-scheduler", ""),
    ],
)
def test_a_driver_of_spark_without_a_quota_of_its_own_gets_a_note(
    driver: str, scheduler: str, says: str
) -> None:
    label = f"quota.scheduling.koordinator.sh/name: {driver}" if driver else ""
    text = SPARK.replace("DRIVER", label).replace("SCHEDULER", scheduler)
    code, output = run("-", text=text)
    assert code == 0, "it is no mistake"
    assert says in output
    assert output.startswith("note: ") is bool(says)


def make_limit(gpus: int, name: str = "team", **more: object) -> Quota:
    return Quota(
        name, **{"namespace": "team", "tree": "", "namespaces": ()} | more, max={GPU: gpus}
    )


@pytest.mark.parametrize(
    ("nodes", "quota", "says"),
    [
        (({GPU: 4}, {GPU: 4}), 64, "each pod asks for 8 of it, and the largest node has 4"),
        (({"cpu": 4},), 64, "no node has any"),
        (({GPU: 8},) * 3, 64, "4 pods that start together ask for 32 of it, the cluster has 24"),
        (({GPU: 8},) * 4, 24, "the max of quota team is 24"),
        (({GPU: 8},) * 4, 32, ""),
        ((), 32, ""),
    ],
)
def test_what_can_never_fit_is_found(
    nodes: tuple[dict[str, int], ...], quota: int, says: str
) -> None:
    group = "kind: PodGroup\nmetadata: {name: g, namespace: team}\nspec: {minMember: 4}\n---"
    facts = ClusterFacts(nodes=nodes, limits=(make_limit(quota),))
    problems = look(group + gpu_job(GATED, GANG), facts)
    assert any(says in problem for problem in problems) if says else problems == []


def test_only_what_must_start_together_counts() -> None:
    """Of pods of several kinds the smallest ones may be those that start."""
    group = "kind: PodGroup\nmetadata: {name: g, namespace: team}\nspec: {minMember: 4}\n---"
    small = gpu_job(GATED, GANG).replace("name: j", "name: s").replace("gpu: 8", "gpu: 1")
    facts = ClusterFacts(nodes=({GPU: 8},), limits=(make_limit(4),))
    assert look(f"{group}{gpu_job(GATED, GANG)}---{small}", facts) == []


def claim(name: str, tree: str = "", namespaces: str = '["a", "b"]') -> str:
    return f"""
kind: ElasticQuota
metadata:
  name: {name}
  labels: {{quota.scheduling.koordinator.sh/tree-id: "{tree}"}}
  annotations: {{quota.scheduling.koordinator.sh/namespaces: '{namespaces}'}}
---"""


def test_a_namespace_bound_twice_is_found() -> None:
    both = claim("x") + claim("y", namespaces='["b"]')
    assert ["belongs to quota y, too" in problem for problem in look(both)] == [True, False]
    assert look(claim("x", "a100") + claim("y", "h100")) == []  # pools of their own
    of_parents = (
        claim(f"of-{root}").replace('tree-id: ""', f"parent: {root}") for root in ("a100", "h100")
    )
    assert look("".join(of_parents)) == []  # each of the tree of its parent
    facts = ClusterFacts(limits=(make_limit(8, "z", namespaces=("a",)),))
    assert "belongs to quota z, too" in look(claim("x"), facts)[0]
    assert look(claim("x", namespaces="[1, {")) == []


CONFIG_MAP = """
apiVersion: v1
kind: ConfigMap
metadata: {{name: {name}, namespace: koordinator-system}}
data:
  colocation-config: '{{"enable": true, "cpuReclaimThresholdPercent": -1}}'
  resource-treshold-config: '{{}}'
  system-config: '{{"clusterStrategy": {{"minFreeKbytesFaktor": 100}}}}'
  cpu-burst-config: ''
  of-somebody-else: text
"""


def test_koordinators_config_map_is_checked_as_the_operators_read_it() -> None:
    code, shown = run("-", text=CONFIG_MAP.format(name="slo-controller-config"))
    assert code == 1
    lines = [line.partition("slo-controller-config: ")[2] for line in shown.splitlines()]
    misspelled, invalid, unknown = filter(None, lines)
    assert misspelled.endswith("is not a key here; did you mean resource-threshold-config?")
    assert invalid.startswith("colocation-config.cpuReclaimThresholdPercent: -1: ")
    assert unknown.startswith("system-config.clusterStrategy.minFreeKbytesFaktor: 100: is not a ")
    assert unknown.endswith("did you mean minFreeKbytesFactor?")
    assert run("-", text=CONFIG_MAP.format(name="another"))[0] == 0
