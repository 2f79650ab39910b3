"""What tenants may write into owners, and sites into kinds: bounded, and refused by name."""

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from tests.owners.frameworks import Jobs, find_kind, owned, replica, translate
from tests.owners.test_worked_examples import GPT, job, jobset, pytorch, replicated
from tests.support.laws import examples

from koord.api.compiled_expressions import EvaluationSteps
from koord.api.expressions import MAX_STEPS, Expression, ExpressionError
from koord.api.owner_kinds import (
    MAX_ROLES,
    ClaimError,
    ClaimReader,
    GangClaim,
    WorkloadKind,
    load_owner_kinds,
)
from koord.core.model.gangs import GangSpec
from koord.core.owners.derive import GangId, is_needed, make_spec
from koord.core.owners.model import OwnerRole, OwnerRoles
from koord.runtime.settings import InvalidConfiguration, parse_settings

CLAIMING = [kind for kind in load_owner_kinds() if kind.gang is not None]
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**40), 2**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)


def fields_of(kind: WorkloadKind) -> list[str]:
    words = set()
    for text in kind.gang.model_dump().values():
        words |= set("".join(c if c.isalpha() else " " for c in text or "").split())
    return sorted(words)


@st.composite
def documents(draw: Any, kind: WorkloadKind) -> dict[str, Any]:
    """Objects that have the fields which the expressions of a kind look for, with any values."""
    names = st.sampled_from(fields_of(kind))
    values = st.recursive(
        JSON | st.integers(0, 5),
        lambda inner: st.dictionaries(names, inner, max_size=4) | st.lists(inner, max_size=3),
        max_leaves=12,
    )
    fields = st.dictionaries(names, values, max_size=5)
    return {
        "metadata": {"annotations": {}, "labels": {}},
        "spec": draw(fields),
        "status": draw(fields),
    }


@pytest.mark.parametrize("kind", CLAIMING, ids=lambda kind: f"{kind.kind}.{kind.group}")
@settings(max_examples=examples(12), deadline=None)
@given(data=st.data())
def test_whatever_an_owner_says_is_a_gang_or_a_problem(kind: WorkloadKind, data: Any) -> None:
    document = data.draw(documents(kind))
    try:
        claim = ClaimReader(kind.gang).read(document)
    except ClaimError as error:
        is_short = 0 < len(error.problem) < 300 and len(error.value) < 100
    else:
        is_short = True
        check(kind, document, claim)
    assert is_short


def check(kind: WorkloadKind, document: dict[str, Any], claim: GangClaim) -> None:
    assert all(0 <= role.least <= 2**31 and 0 <= role.size <= 2**31 for role in claim.roles)
    owner = translate(
        {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": "x"},
            "spec": document["spec"],
            "status": document["status"],
        }
    )
    for stage in set(owner.claim.roles.stage_of.values()):
        gang = GangId(stage)
        if is_needed(owner, gang):
            spec = make_spec(owner, "default/x", gang)
            assert not isinstance(spec, GangSpec) or spec.min_member <= 10_000


@pytest.mark.parametrize(
    ("replicas", "code"),
    [
        (10**9, "TooLarge"),
        (10**12, "InvalidOwner"),
        (-1, "InvalidOwner"),
        ("three", "InvalidOwner"),
        (2.5, "InvalidOwner"),
        (True, "InvalidOwner"),
        ({}, "InvalidOwner"),
    ],
)
def test_numbers_that_make_no_sense(replicas: Any, code: str) -> None:
    bad = pytorch("gpt", {"pytorchReplicaSpecs": {"Worker": {"replicas": replicas}}})
    jobs = Jobs().own_objects(bad).pods(*(replica(bad, "worker", at) for at in range(3)))
    assert jobs.step() == []
    reason = jobs.why("gpt-worker-0")
    assert reason.code == code
    assert len(reason.text()) < 400
    assert len(jobs.own_objects(GPT).pods(replica(GPT, "master", 0)).run()) == 4


def test_a_size_of_nothing_holds_nobody() -> None:
    none = pytorch("gpt", {"pytorchReplicaSpecs": {"Worker": {"replicas": 0}}})
    jobs = Jobs().own_objects(none).pods(replica(none, "worker", 0))
    assert jobs.step() == ["gpt-worker-0"]


def test_stages_in_a_circle_are_some_stages() -> None:
    js = jobset(
        replicated("a", 1, 2, dependsOn=[{"name": "b"}]),
        replicated("b", 1, 2, dependsOn=[{"name": "a"}]),
        replicated("c", 1, 2, dependsOn=[{"name": "nobody"}]),
    )
    assert set(translate(js).claim.roles.stage_of) == {"a", "b", "c"}


def test_more_sets_of_pods_than_are_told_apart() -> None:
    js = jobset(replicated("w", 5000, 2))
    jobs = Jobs().own_objects(js)
    made = job("js-w-0", {}, ownerReferences=[])
    assert made["kind"] == "Job"
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": "w", "jobset.sigs.k8s.io/job-index": "4999"}
    jobs.pods(owned("w-0", js, labels))
    assert jobs.spec_of("w-0").sub_groups is None
    assert jobs.spec_of("w-0").min_member == 10_000


def test_lists_of_any_length_cost_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    taken, spend = Counter[str](), EvaluationSteps.spend

    def counted(self: EvaluationSteps, count: int) -> None:
        spend(self, count)
        taken["steps"] += count

    monkeypatch.setattr(EvaluationSteps, "spend", counted)
    owner = translate(jobset(*({} for _ in range(5000))))
    assert owner.claim.problem.code == "InvalidOwner"
    assert "takes more than 10000 steps" in owner.claim.problem.text()
    assert taken["steps"] <= MAX_STEPS
    taken.clear()
    # As many roles as there may be are far from that.
    names = [f"r{at}" for at in range(MAX_ROLES)]
    after = ([{"name": name} for name in names[at + 1 :]] for at in range(MAX_ROLES))
    most = jobset(*(replicated(n, 2, 2, dependsOn=a) for n, a in zip(names, after, strict=True)))
    owner = translate(most)
    assert len(owner.claim.roles.least_of) == MAX_ROLES
    assert MAX_ROLES < taken["steps"] <= 2 * MAX_STEPS


def test_roles_in_order_are_put_in_stages_in_one_pass() -> None:
    class Counted(dict[str, OwnerRole]):
        reads = 0

        def __getitem__(self, name: str) -> OwnerRole:
            self.reads += 1
            return super().__getitem__(name)

    names = [f"r{at}" for at in range(MAX_ROLES)]
    roles = OwnerRoles(
        tuple(OwnerRole(name, 1, 1, 0, tuple(names[at + 1 :])) for at, name in enumerate(names))
    )
    roles.__dict__["by_name"] = by_name = Counted(roles.by_name)
    assert len(set(roles.stage_of.values())) == MAX_ROLES
    assert by_name.reads <= 2 * MAX_ROLES


def test_an_owner_of_nonsense_is_an_owner() -> None:
    text = "x" * 3000
    owner = translate(pytorch("gpt", {"pytorchReplicaSpecs": text}))
    assert owner.claim.problem.code == "InvalidOwner"
    assert len(owner.claim.problem.text()) < 400


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        ({"group": "Acme"}, "group"),
        ({"plural": "x/y"}, "plural"),
        ({"gang": {"roles": "[?"}}, "no JMESPath expression"),
        ({"gang": {"roles": "x" * 5000}}, "longer than 4096"),
        ({"gang": {}}, "roles"),
        ({"gang": {"roles": "a", "colour": "b"}}, "colour"),
    ],
)
def test_kinds_of_a_site_are_checked(kind: dict[str, Any], problem: str) -> None:
    whole = {
        "group": "acme.example",
        "version": "v1",
        "kind": "Train",
        "plural": "trains",
        "gang": {"roles": "[{name: '', size: spec.nodes}]"},
    }
    WorkloadKind.model_validate(whole)
    with pytest.raises(ValidationError, match=problem):
        WorkloadKind.model_validate(whole | kind)
    document = {
        "apiVersion": "operators.koordinator.sh/v1alpha1",
        "kind": "OperatorConfiguration",
        "owners": {"enabled": True, "kinds": [whole | kind]},
    }
    with pytest.raises(InvalidConfiguration, match=r"owners\.kinds\.0"):
        parse_settings(json.dumps(document), "config.yaml")


def test_functions_of_expressions() -> None:
    def evaluate(text: str, document: Any = None) -> Any:
        return Expression(text).evaluate(document)

    assert evaluate("count_indexes(@)", "1,3-5,7") == 5
    assert evaluate("count_indexes(@)", "x,5-1,-,99999999999") == 0
    assert evaluate("product(@)", [2, None, 3]) == 6
    assert evaluate("smallest(@)", [None]) is None
    assert evaluate("largest(@)", [None, 2, 1]) == 2
    assert evaluate("clamp(`5`, `1`, `3`)") == 3
    assert evaluate("clamp(`0`, `2`, `1`)") == 2
    assert evaluate("entries(@)[].key", {"b": 1, "a": 2}) == ["b", "a"]
    for text, document in (("product(@)", ["x"]), ("subtract(a, b)", {}), ("sort(@)", [1, "a"])):
        with pytest.raises(ExpressionError):
            evaluate(text, document)


def test_every_kind_of_a_file_is_read_once() -> None:
    names = [(kind.api_version, kind.kind) for kind in load_owner_kinds()]
    assert len(names) == len(set(names))
    assert find_kind("batch/v1", "Job").part == "claims"
    assert all(kind.gang is not None for kind in load_owner_kinds() if kind.part == "claims")
