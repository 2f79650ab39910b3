"""A tenant who writes files for ``koord lint`` to read: in checks of what she wants to merge.

Whatever is in them, the command ends, tells each problem in one line, and the objects of others in
the same run are checked as ever.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.work import grows_with
from typer.testing import CliRunner

from koord.api.lint import lint_documents
from koord.api.lint_capacity import find_capacity_problems
from koord.api.lint_files import ClusterFacts, Quota
from koord.api.lint_relations import find_parent_problems, find_relation_problems
from koord.api.manifest_text import MAX_DEPTH, UnreadableError, read_documents, read_json
from koord.cli import lint_pods
from koord.cli.main import app

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

GPU = "nvidia.com/gpu"
GROUP = "pod-group.scheduling.sigs.k8s.io"
QUOTA = "quota.scheduling.koordinator.sh/name"
CLAIMS = "quota.scheduling.koordinator.sh/namespaces"
PREFIX = "operators.koordinator.sh/"
VERSION = "scheduling.sigs.k8s.io/v1alpha1"
VICTIM = "kind: Pod\nmetadata: {name: victim, labels: {a: 5}}\n"
TOLD = "Pod victim: metadata.labels.a: 5: must be a string"
FORGED = "team\nall.yaml: Pod x: forged\r\x1b[2J\u202e::error::x"


def lint(tmp_path: Path, text: str, name: str = "evil.yaml", *options: str) -> tuple[int, str]:
    """Check the tenant's file beside another one."""
    (tmp_path / name).write_text(text)
    (tmp_path / "victim.yaml").write_text(VICTIM)
    result = CliRunner().invoke(app, ["lint", str(tmp_path), *options])
    assert isinstance(result.exception, SystemExit | None), result.exception
    assert TOLD in result.output
    return result.exit_code, result.output


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("minMember: 0x" + "f" * 5000, "spec.minMember is a number of more than 64 bits"),
        ("minMember: 99999999999999999999", "spec.minMember is a number of more than 64 bits"),
        ("minMember: .inf", "spec.minMember is no finite number"),
        ("minMember: .nan", "spec.minMember is no finite number"),
        ("minMember: !!timestamp 2030-01-01", "line 4: could not determine a constructor"),
        ("? !!timestamp 2030-01-01\n  : 1", "line 4: could not determine a constructor"),
        ("? !!binary aGFsbG8=\n  : 1", "line 4: could not determine a constructor"),
        ("minMember: !!set {a, b}", "line 4: could not determine a constructor"),
        ("? null\n  : 1", "line 4: a key is no text"),
    ],
)  # fmt: skip
def test_what_json_cannot_have_is_refused_with_its_place(
    tmp_path: Path, text: str, told: str
) -> None:
    head = f"apiVersion: {VERSION}\nkind: PodGroup\nspec:\n  "
    code, output = lint(tmp_path, f"{head}{text}\n")
    assert (code, told in output) == (2, True), output


@pytest.mark.parametrize(
    "text",
    ["[" * 900 + "]" * 900, '{"a":' * 300 + "1" + "}" * 300, '{"spec": 1e999}', '{"a": NaN}'],
    ids=["lists", "maps", "too large", "no number"],
)
def test_json_that_no_api_server_takes_is_refused(tmp_path: Path, text: str) -> None:
    code, output = lint(tmp_path, text, "evil.json")
    assert code == 2
    assert "evil.json: " in output


def test_as_many_levels_are_read_as_are_walked() -> None:
    def nest(levels: int) -> str:
        return '{"a":' * (levels - 1) + "{}" + "}" * (levels - 1)

    assert read_json(nest(MAX_DEPTH))
    assert list(read_documents(nest(MAX_DEPTH)))
    for read in (read_json, lambda text: list(read_documents(text))):
        with pytest.raises(UnreadableError, match=f"a.a.a.*more than {MAX_DEPTH} levels"):
            read(nest(MAX_DEPTH + 1))


def test_keys_are_texts_as_kubectl_makes_them() -> None:
    text = "{1: a, true: b, 0.5: c, d: e}"
    assert list(read_documents(text)) == [{"1": "a", "true": "b", "0.5": "c", "d": "e"}]


def test_aliases_of_all_documents_of_a_text_are_counted_together() -> None:
    document = (
        "a: &a [" + "x, " * 99 + "x]\nb: &b [" + "*a, " * 99 + "*a]\nc: [" + "*b, " * 9 + "]\n"
    )
    assert len(list(read_documents(f"{document}---\n" * 9))) == 9
    with pytest.raises(UnreadableError, match="too many values"):
        list(read_documents(f"{document}---\n" * 20))


@pytest.mark.parametrize("kind", ["List", "JobList"])
def test_nothing_is_hidden_in_a_list(tmp_path: Path, kind: str) -> None:
    pods = [{"kind": "Pod", "metadata": {"name": f"p-{at}", "labels": {"a": at}}} for at in (1, 2)]
    nested = {"kind": kind, "items": [pods[0], {"kind": "List", "items": pods[1:]}]}
    code, output = lint(tmp_path, yaml.safe_dump(nested))
    assert code == 1
    for at in (1, 2):
        assert f"evil.yaml: Pod p-{at}: metadata.labels.a: {at}: " in output
    assert "3 objects checked" in output


def make_pods(name: str, gpus: int = 1, **labels: str) -> dict[str, Any]:
    limits = {"resources": {"limits": {GPU: gpus}}}
    meta = {"name": name, "labels": labels}
    return {"kind": "Pod", "metadata": meta, "spec": {"containers": [limits]}}


STRANGE: list[Any] = [
    {"kind": "Pod", "spec": {"schedulingGates": [{"name": {}}, {"name": [1]}, 3]}},
    {"kind": [1], "metadata": {"name": {"a": 1}, "namespace": [2]}, "spec": {"template": {"a": 1}}},
    {"kind": "Job", "apiVersion": "batch/v1", "spec": {"parallelism": -3, "completions": True}},
    {"kind": "JobSet", "spec": {"replicatedJobs": [1, {"template": [1]}, {"template": {}}]}},
    {"kind": "PodGroup", "spec": {"minMember": True}, "metadata": {"annotations": {"a": {}}}},
    {"kind": "ElasticQuota", "spec": {"min": {"a": [1]}, "max": {"b": {"c": 1}}}},
    {"kind": "ElasticQuota", "metadata": {"annotations": {CLAIMS: '[["a"], {}, null]'}}},
    {"kind": "PriorityClass", "metadata": {"name": []}, "value": True},
    {"kind": "ConfigMap", "metadata": {"name": "slo-controller-config"}, "data": {"a": [1]}},
    {"kind": "ClusterColocationProfile", "spec": {"selector": [1], "probability": "x" * 99}},
    {"kind": "Namespace", "metadata": {"name": 3, "labels": [1]}},
    {"kind": "Pod", "spec": {"priority": 2**63, "containers": [{"resources": {"limits": [1]}}]}},
    {"kind": "Pod", "spec": {"containers": [{"resources": {"requests": {"cpu": {"a": 1}}}}]}},
    {"kind": "ElasticQuotaProfile", "spec": {"quotaName": {"a": 1}}},
    {"kind": "List", "items": [None, 1, [2], {"kind": "List", "items": {}}]},
    make_pods("p", gpus=10**18, **{GROUP: "x" * 9000, QUOTA: "y" * 9000}),
]  # fmt: skip


def test_values_of_any_type_are_checked(tmp_path: Path) -> None:
    profile = {"kind": "ClusterColocationProfile", "metadata": {"name": "all"}}
    profile |= {"apiVersion": "config.koordinator.sh/v1alpha1", "spec": {"labels": {"a": "b"}}}
    (tmp_path / "p.yml").write_text(yaml.safe_dump(profile))
    text = yaml.safe_dump_all(STRANGE)
    for options in ((), ("--profile", str(tmp_path / "p.yml"))):
        _, output = lint(tmp_path, text, "evil.yaml", *options)
        assert "a defect" not in output
    result = CliRunner().invoke(app, ["lint", str(tmp_path / "evil.yaml"), "-o", "json"])
    assert "problems" in json.loads(result.stdout)


NAMES = ("a", "b/c", "", FORGED, "x" * 300, "=1+1")
KINDS = ("Pod", "Job", "PodGroup", "ElasticQuota", "JobSet", "List", "Namespace", "PriorityClass")
FIELDS = (
    *("metadata", "spec", "template", "labels", "annotations", "containers", "resources", "limits"),
    *("requests", "minMember", "parallelism", "completions", "schedulingGates", "name", "items"),
    *("min", "max", "namespace", "priority", "replicatedJobs", "ownerReferences", "value"),
    *(GROUP, QUOTA, CLAIMS, GPU, "cpu", "gang.scheduling.koordinator.sh/min-available"),
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 2**63)
    | st.floats(allow_nan=False)
    | st.sampled_from(NAMES),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip
OBJECTS = st.fixed_dictionaries(
    {"kind": st.sampled_from(KINDS), "metadata": VALUES, "spec": VALUES},
    optional={
        "apiVersion": st.sampled_from((VERSION, "batch/v1")),
        "items": VALUES,
        "data": VALUES,
    },
)


@settings(max_examples=25)
@given(st.lists(OBJECTS | VALUES, min_size=1, max_size=3))
def test_any_documents_are_checked(documents: list[Any]) -> None:
    told = [problem for checked in lint_documents(documents) for problem in checked.problems]
    for find in (find_relation_problems, find_capacity_problems, find_parent_problems):
        told += [problem for _, problem in find(documents, FACTS)]
    for text in map(str, told):
        assert "a defect" not in text
        assert text.isprintable()
        assert len(text) < 3000


FACTS = ClusterFacts(
    frozenset({("team", "there")}),
    frozenset({"q"}),
    "team",
    (Quota("q", "team", "", ("team", "a"), {GPU: 4}),),
    ({GPU: 8, "cpu": 64_000},),
)


@pytest.mark.parametrize(
    "document",
    [
        make_pods(FORGED, **{GROUP: FORGED, QUOTA: FORGED, FORGED: "1"}),
        {"kind": FORGED, "metadata": {"labels": {FORGED: 1}}, FORGED: 1},
        {"kind": "PodGroup", "apiVersion": VERSION, FORGED: 1, "spec": {FORGED: FORGED}},
        {"kind": "Pod", "spec": {"schedulingGates": [{"name": f"{PREFIX}{FORGED}"}]}},
        {"kind": "ElasticQuota", "spec": {"min": {FORGED: FORGED}, "max": {"cpu": 1}}},
        {"kind": "ElasticQuota", "metadata": {"annotations": {CLAIMS: json.dumps([FORGED] * 2)}}},
    ],
)  # fmt: skip
def test_no_line_is_forged_and_no_terminal_steered(tmp_path: Path, document: Any) -> None:
    _, output = lint(tmp_path, yaml.safe_dump(document))
    *lines, last = output.splitlines()
    assert last.startswith("2 objects checked")
    for line in lines:
        assert line.removeprefix("note: ").startswith(str(tmp_path)), line
        assert line.isprintable()


def test_what_is_quoted_is_short(tmp_path: Path) -> None:
    long = "x" * 500_000
    pods = [{"kind": long, "metadata": {"name": long, "labels": {long: at}}} for at in range(3)]
    text = "".join(f"---\n{json.dumps(pod)}\n" for pod in pods)
    _, output = lint(tmp_path, text)
    assert len(output) < 10_000


# --- what thousands of objects cost --------------------------------------------------------------


def make_many(at: int) -> list[Any]:
    """Make objects that name nothing that there is, and look like all that there is."""
    labels = {GROUP: f"grp-{at}", QUOTA: f"quata-{at}"}
    chain = {"labels": {"quota.scheduling.koordinator.sh/parent": f"quota-{at + 1}"}}
    claims = {"annotations": {CLAIMS: json.dumps([f"ns-{at}", f"ns-{at + 1}", "all"])}}
    amounts = {f"a{at}.example/x": 1}
    pod = make_pods(f"p-{at}", **labels)
    pod["spec"]["containers"][0]["resources"]["limits"] |= amounts
    return [
        {"kind": "PodGroup", "metadata": {"name": f"group-{at}"}, "spec": {"minMember": 2}},
        {"kind": "ElasticQuota", "metadata": {"name": f"quota-{at}", **chain, **claims}},
        make_pods(f"m-{at}", **{GROUP: f"group-{at}"}),
        make_pods(f"n-{at}", **{GROUP: "group-0"}),
        pod,
    ]


@pytest.mark.parametrize(
    "find", [find_relation_problems, find_capacity_problems, find_parent_problems]
)
@pytest.mark.parametrize("where", ["files", "cluster"])
def test_thousands_of_objects_cost_in_proportion(find: Callable[..., Any], where: str) -> None:
    def make(count: int) -> Callable[[], Any]:
        documents = [document for at in range(count) for document in make_many(at)]
        names = [f"group-{at}" for at in range(count)]
        quotas = tuple(
            Quota(f"other-{at}", "x", "", ("all", f"ns-{at}"), {GPU: 4}, parent=f"other-{at + 1}")
            for at in range(count)
        )
        nodes = tuple({GPU: 8, f"a{at}.example/x": 1} for at in range(count))
        facts = ClusterFacts(
            frozenset(("team", name) for name in names),
            frozenset(quota.name for quota in quotas),
            "team",
            quotas,
            nodes,
        )
        return lambda: list(find(documents, facts if where == "cluster" else None))

    assert grows_with(40, make) < 1.4


def test_profiles_are_tried_on_so_many_templates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lint_pods, "MOST_TRIED", 10)
    profiles = [
        {
            "kind": "ClusterColocationProfile",
            "apiVersion": "config.koordinator.sh/v1alpha1",
            "metadata": {"name": f"p{at}"},
            "spec": {"labels": {"a": "b"}},
        }
        for at in range(3)
    ]
    (tmp_path / "p.yml").write_text(yaml.safe_dump_all(profiles))
    pods = yaml.safe_dump_all([make_pods(f"p-{at}") for at in range(5)])
    _, output = lint(tmp_path, pods, "evil.yaml", "--profile", str(tmp_path / "p.yml"))
    assert "note: profiles: all 6: " in output  # those of the folder, too
    assert "too many to try all profiles on" in output


def test_an_object_with_thousands_of_templates_costs_in_proportion(tmp_path: Path) -> None:
    def make(count: int) -> Callable[[], Any]:
        spec = {"containers": [{"resources": {"limits": {"cpu": "1500m"}}}]}
        labels = {"koordinator.sh/qosClass": "LSR"}
        template = {"spec": {"template": {"metadata": {"labels": labels}, "spec": spec}}}
        jobs = [{"name": f"j-{at}", "template": template} for at in range(count)]
        document = {"kind": "JobSet", "spec": {"replicatedJobs": jobs}}
        document["apiVersion"] = "jobset.x-k8s.io/v1alpha2"
        path = tmp_path / f"{count}.json"
        path.write_text(json.dumps(document))
        return lambda: CliRunner().invoke(app, ["lint", str(path)])

    assert grows_with(30, make) < 1.3
