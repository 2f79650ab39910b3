"""Whatever owners write on their pods: nobody waits for them for ever, and nobody goes in vain."""

import pytest
from tests.model.adversaries import DEADLINE, make_siege, run_siege
from tests.model.network import CrashPoint
from tests.model.objects import PodPlan, is_terminating, name_of, node_of, quota_of
from tests.model.quotas import ROOT
from tests.model.steps import Step, quiet
from tests.model.world import open_world

IN_CI = 40
WITH_CRASHES = 1
MOST = 400


def play(seeds: range) -> None:
    for seed in seeds:
        siege = make_siege(seed)
        outcome = run_siege(siege)
        assert not outcome.violations, f"{siege.story}\n{outcome.violations}"


def crash_everywhere(seeds: range) -> int:
    """Crash before and after every write; return how often."""
    points = 0
    for seed in seeds:
        siege = make_siege(seed)
        for at in range(1, len(run_siege(siege).writes) + 1):
            for is_before in (True, False):
                crash = CrashPoint(at, is_before)
                outcome = run_siege(siege, crash)
                assert not outcome.violations, f"{siege.story}\n{crash}\n{outcome.violations}"
                points += outcome.processes > 1
    return points


@pytest.mark.timeout(0)
def test_sieges() -> None:
    assert {siege.may_run for siege in map(make_siege, range(IN_CI))} == {True, False}
    play(range(IN_CI))


@pytest.mark.timeout(0)
def test_sieges_with_a_crash_at_every_write() -> None:
    assert crash_everywhere(range(WITH_CRASHES)) >= 10 * WITH_CRASHES


def test_what_is_guaranteed_comes_back_although_pods_of_the_borrower_never_go() -> None:
    liars = [PodPlan(f"a-{at}", 8, quota="qa", finalizer=at < 2) for at in range(4)]
    steps = (
        Step(0.0, "reclaim_over_use"),
        Step(0.0, "put_quota", (ROOT, 8, 64)),
        Step(0.0, "put_quota", ("qa", 0, 32)),
        Step(0.0, "put_quota", ("qb", 8, 32)),
        *(Step(0.0, "add_node", (f"n{at}", 8)) for at in range(4)),
        Step(0.0, "start"),
        *(Step(0.0, "create_pod", (pod,)) for pod in reversed(liars)),
        Step(8.0, "create_pod", (PodPlan("b", 8, quota="qb"),)),
        Step(2.5, "crash"),
        Step(DEADLINE, "wait"),
    )
    with quiet(), open_world(1) as world:
        for step in steps:
            step.take(world)
        world.settle()
        assert not world.ledger.violations
        assert [name_of(pod) for pod in world.pods() if node_of(pod) and quota_of(pod) == "qb"]
        hang = [pod for pod in world.pods() if is_terminating(pod)]
        assert hang, "a pod that never goes was tried first"


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_more_sieges() -> None:
    play(range(IN_CI, MOST))
    crash_everywhere(range(WITH_CRASHES, 20))
