"""An exception caused by one quota, tree or pod does not affect the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.builders import GPU
from tests.placement.test_quotas import make_teams, team, worker

from koord.controllers.quota_status import QuotaStatusPolicy
from koord.core.model.reasons import InternalError
from koord.core.quota import cache, catalog, supply
from koord.core.quota.reasons import QuotaNotInForce
from koord.core.quota.spec_errors import QuotaProblem
from koord.isolation import FAILURES
from koord.kube.translate.quotas import QuotaTranslator

if TYPE_CHECKING:
    from collections.abc import Callable


def fail_on(name: str, call: Callable[..., Any], pick: Callable[..., str]) -> Callable[..., Any]:
    """Do as ``call`` does, but for what is called ``name``."""

    def fail(*args: Any, **more: Any) -> Any:
        if pick(*args) == name:
            raise ZeroDivisionError
        return call(*args, **more)

    return fail


def test_an_exception_in_validation_keeps_only_that_quota_out_of_force(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken = fail_on("bad", catalog.check_create, lambda spec, *_: spec.name)
    monkeypatch.setattr(catalog, "check_create", broken)
    cluster = make_teams(4, team("a"), team("bad"), team("z"))
    cluster.pods(*(worker(name, name).build() for name in ("a", "bad", "z")))
    assert sorted(cluster.step()) == ["a", "z"]
    reason = cluster.reason()
    assert isinstance(reason, QuotaNotInForce)
    assert reason.problem.rule is QuotaProblem.INTERNAL_ERROR
    assert list(cluster.state.quotas.defects) == ["quota q/bad"]


def test_an_exception_in_validation_of_an_edit_keeps_the_settings_in_force(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = make_teams(4, team("a", most=8))
    cluster.step()
    broken = fail_on("a", catalog.check_update, lambda spec, *_: spec.name)
    monkeypatch.setattr(catalog, "check_update", broken)
    cluster.quotas(team("a", most=16))
    cluster.quotas(team("b"))
    cluster.pods(worker("one", "a").build(), worker("two", "a").build(), worker("b", "b").build())
    assert len(cluster.step()) == 2
    assert cluster.state.open_ledger().account("a").spec.max == {GPU: 8}


def test_a_tree_that_cannot_be_laid_out_blocks_only_its_own_pods(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make = catalog.make_tree

    def fail(specs: list[Any]) -> Any:
        if any(spec.tree_id for spec in specs):
            raise ZeroDivisionError
        return make(specs)

    monkeypatch.setattr(catalog, "make_tree", fail)
    pool = team("pool", tree_id="t", is_tree_root=True, total={GPU: 8})
    cluster = make_teams(4, pool, team("a"))
    cluster.pods(worker("in-pool", "pool").build(), worker("in-a", "a").build())
    assert cluster.step() == ["in-a"]
    assert cluster.reason() == InternalError("ZeroDivisionError", "pool")


def test_pods_in_no_quota_start_without_a_computed_capacity(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = make_teams(4, team("a"))
    cluster.pods(worker("in-a", "a").build(), worker("outside", "").build())
    add_up = supply.add_up
    monkeypatch.setattr(supply, "add_up", lambda *_: 1 // 0)
    assert cluster.step() == ["outside"]
    assert cluster.reason() == InternalError("ZeroDivisionError", "a")
    monkeypatch.setattr(supply, "add_up", add_up)
    assert cluster.step() == ["in-a"]


def test_an_exception_in_counting_a_pod_does_not_affect_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count = cache.QuotaCache._count
    broken = fail_on("bad", count, lambda _, pod: pod.name)
    monkeypatch.setattr(cache.QuotaCache, "_count", broken)
    cluster = make_teams(4, team("a"))
    cluster.pods(worker("bad", "a").running("n0").build(), worker("good", "a").build())
    assert cluster.step() == ["good"]
    assert list(cluster.state.quotas.defects) == ["pod default/bad"]


class Sink:
    def __init__(self) -> None:
        self.told: list[str] = []

    def write_status(self, quota: Any, *_: Any, **__: Any) -> None:
        self.told.append(quota.name)

    def awaits(self, _: str) -> bool:
        return False


@pytest.mark.isolates
def test_an_exception_in_one_status_does_not_affect_others(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, sink = make_teams(1, team("a"), team("bad"), team("z")), Sink()
    policy = QuotaStatusPolicy(cluster.state, sink, QuotaTranslator())
    make = QuotaStatusPolicy._make
    broken = fail_on("bad", make, lambda _, quotas, standing, *__: standing.written.name)
    monkeypatch.setattr(QuotaStatusPolicy, "_make", broken)
    failures = FAILURES.counts.total()
    policy.update_all()
    policy.update_all()
    assert sink.told == ["a", "z"]
    assert len(policy.summaries) == 3
    assert FAILURES.counts.total() == failures + 2
