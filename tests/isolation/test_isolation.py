"""Every loop over objects of many tenants serves the others when one of them makes it fail."""

import ast
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.isolation import (
    of_answers,
    of_batch_reclaim,
    of_decisions,
    of_lint,
    of_migrations,
    of_nodes,
    of_queues,
    of_serve,
    of_usage,
    of_writers,
)
from tests.isolation.plays import PLAYS, Patch

import koord
from koord.isolation import (
    FAILURES,
    LONGEST_REST_SECONDS,
    MAX_RESTING,
    EndsProcess,
    Isolation,
)

pytestmark = pytest.mark.isolates
assert of_decisions.__doc__, (
    of_answers.__doc__,
    of_batch_reclaim.__doc__,
    of_lint.__doc__,
    of_migrations.__doc__,
    of_nodes.__doc__,
    of_queues.__doc__,
    of_serve.__doc__,
    of_usage.__doc__,
    of_writers.__doc__,
)  # in PLAYS


def fail(error: Exception) -> str:
    raise error


def test_a_failure_is_counted_and_the_object_rests() -> None:
    isolated = Isolation("test")
    before = FAILURES.counts["test"]
    assert isolated.call("bad", fail, ZeroDivisionError()) is None
    assert isolated.call("good", str, 1) == "1"
    assert FAILURES.counts["test"] == before + 1
    assert isolated.error_of("bad") == "ZeroDivisionError"
    assert isolated.again_at("good") is None
    assert isolated.rests("bad", 0.5)
    assert not isolated.rests("bad", 1.0)


@given(st.integers(1, 40))
def test_pauses_double_up_to_a_limit_and_end_with_a_success(times: int) -> None:
    isolated = Isolation("test")
    for _ in range(times):
        isolated.note("bad", ValueError(), 100.0)
    assert isolated.again_at("bad") == 100.0 + min(2.0 ** (times - 1), LONGEST_REST_SECONDS)
    with isolated.of("bad"):
        pass
    assert not isolated.rests("bad", 100.0)


@pytest.mark.parametrize(
    "error",
    [EndsProcess(), ExceptionGroup("", [ValueError(), ExceptionGroup("", [EndsProcess()])])],
)
def test_what_must_end_the_process_is_raised(error: Exception) -> None:
    with pytest.raises(type(error)):
        Isolation("test").call("x", fail, error)


def test_many_failing_objects_cost_bounded_memory() -> None:
    isolated = Isolation("test")
    for at in range(2 * MAX_RESTING):
        isolated.note(at, ValueError())
    assert isolated.again_at(0) is None
    assert isolated.again_at(2 * MAX_RESTING - 1) is not None
    assert len(isolated._resting) == MAX_RESTING


SHOWN_ELSEWHERE = {
    "colocation-profiles": "tests/controllers/test_colocation_profiles.py",
    "quota-audit": "tests/core/test_quotaaudit.py",
    "preemption-search": "tests/controllers/test_preemption.py",
    "owners": "looks for the kinds that are served: nothing of tenants is read there",
    "verdicts": "a call in the event loop, whose error ends nothing; it is only counted",
}
NODE_POLICIES = {"node-ratios", "node-slo"}
"""Their loops are called as they are."""
SOURCE = Path(koord.__file__).parent


def test_every_isolated_loop_is_played() -> None:
    names = {
        name
        for path in SOURCE.rglob("*.py")
        for name in re.findall(r'[^"`]Isolation\("([\w-]+)"\)', path.read_text())
    }
    names |= NODE_POLICIES
    played = {name.partition("/")[0] for name in PLAYS}
    assert played <= names
    assert names - played == SHOWN_ELSEWHERE.keys()


BROAD = {
    "isolation.py": 1,
    "api/expressions.py": 1,  # a library raises what its functions meet; it is told as a problem
    "controllers/decision_log.py": 3,  # called for every decision: the helper costs a record
    "controllers/error_isolation.py": 1,  # it plans without room for lost members then
    "core/engine/safe_planner.py": 2,  # it also rolls back, and refuses the unit
    "controllers/preemption.py": 2,  # a plan has a reason of its own; the budgets of before count
    "core/quota/cache.py": 4,  # quotas keep what is wrong with each as a value
    "core/quota/catalog.py": 1,
    "core/quota/hooks.py": 1,
    "kube/status.py": 1,  # it counts outcomes
    "kube/store.py": 1,  # malformed objects are no defects
    "kube/pool.py": 1,  # about requests, not objects
    "kube/warm_connections.py": 2,
    "runtime/hooks.py": 1,
    "runtime/kopf_host.py": 1,
}
"""Where any error is caught without ``Isolation.of``, and why."""


def test_any_error_is_caught_by_the_helper_only() -> None:
    found = {}
    for package in ("", "answers", "api", "controllers", "core", "kube", "runtime"):
        for path in (SOURCE / package).glob("**/*.py" if package else "*.py"):
            text = path.read_text()
            if "except Exception" not in text:  # most files: parsing all of them takes seconds
                continue
            if broad := list(map(is_broad, ast.walk(ast.parse(text)))).count(True):
                found[path.relative_to(SOURCE).as_posix()] = broad
    assert found == BROAD


def is_broad(node: ast.AST) -> bool:
    """Whether a handler catches any error."""
    of = node.type if isinstance(node, ast.ExceptHandler) else None
    return isinstance(of, ast.Name) and of.id == "Exception"


@pytest.mark.parametrize("name", PLAYS)
def test_others_are_served(name: str, monkeypatch: Patch) -> None:
    loop = name.partition("/")[0]
    before = FAILURES.counts[loop]
    assert sorted(PLAYS[name](monkeypatch)) == ["a", "z"]
    assert FAILURES.counts[loop] > before
