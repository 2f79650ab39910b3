"""Whatever owners write on their pods: nobody waits for them for ever, and nobody goes in vain."""

import pytest
from tests.model.adversaries import DEADLINE, make_debt, make_siege, run_debt, run_siege
from tests.model.network import CrashPoint
from tests.model.objects import PodPlan, is_terminating, make_pod_group, name_of, node_of, quota_of
from tests.model.quotas import ROOT
from tests.model.steps import Step, quiet
from tests.model.world import open_world
from tests.support.laws import examples, sample

IN_CI = examples(8)
CRASHES = 8
"""Of one siege in every run: before some of its writes, after others."""
WITH_CRASHES = 1
MOST = 400


def play(seeds: range) -> None:
    for seed in seeds:
        siege = make_siege(seed)
        outcome = run_siege(siege)
        assert not outcome.violations, f"{siege.story}\n{outcome.violations}"


def play_debts(seeds: range) -> None:
    for seed in seeds:
        debt = make_debt(seed)
        outcome = run_debt(debt)
        assert not outcome.violations, f"{debt.story}\n{outcome.violations}"


def crash_everywhere(seeds: range, most: int | None = None) -> int:
    """Crash before and after every write, or at so many of a siege; return how often."""
    points = 0
    for seed in seeds:
        siege = make_siege(seed)
        crashes = [
            CrashPoint(at, is_before)
            for at in range(1, len(run_siege(siege).writes) + 1)
            for is_before in (True, False)
        ]
        for crash in crashes if most is None else sample(crashes, most):
            outcome = run_siege(siege, crash)
            assert not outcome.violations, f"{siege.story}\n{crash}\n{outcome.violations}"
            points += outcome.processes > 1
    return points


@pytest.mark.timeout(0)
def test_sieges() -> None:
    assert {siege.may_run for siege in map(make_siege, range(IN_CI))} == {True, False}
    play(range(IN_CI))


@pytest.mark.timeout(0)
def test_what_is_guaranteed_comes_back_whatever_the_borrower_writes() -> None:
    play_debts(range(examples(4)))


@pytest.mark.timeout(0)
def test_sieges_with_a_crash_at_writes() -> None:
    assert crash_everywhere(range(WITH_CRASHES), CRASHES) >= CRASHES


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


def flap(crash: CrashPoint | None = None) -> tuple[list[str], int]:
    """Raise and lower the minimum of a gang all the time while it is preempted.

    Return what is wrong, and the number of writes of the first process.
    """
    big = [PodPlan(f"big-{at}", 8, gang="low", soft="3s") for at in range(2)]
    steps = (
        *((Step(0.0, "crash_at", (crash,)),) if crash is not None else ()),
        Step(0.0, "be_impatient"),
        *(Step(0.0, "add_node", (f"n{at}", 9)) for at in range(2)),
        Step(0.0, "put_pod_group", (make_pod_group("low", 1),)),
        *(Step(0.0, "create_pod", (pod,)) for pod in big),
        Step(0.0, "start"),
        # The first member in order is the last to be preempted: it stays.
        Step(6.0, "create_pod", (PodPlan("a-small", 1, gang="low", soft="3s"),)),
        Step(3.0, "put_pod_group", (make_pod_group("high", 2),)),
        *(
            Step(0.0, "create_pod", (PodPlan(f"high-{at}", 8, gang="high", priority=10),))
            for at in range(2)
        ),
        *(
            Step(0.3, "put_pod_group", (make_pod_group("low", 50 if at % 3 else 1),))
            for at in range(120)
        ),
    )
    with quiet(), open_world(7) as world:
        for step in steps:
            step.take(world)
        bound = sorted(name_of(pod) for pod in world.pods() if node_of(pod))
        wrong = list(world.ledger.violations)
        if not {"high-0", "high-1"} <= set(bound):
            wrong.append(f"bound are only {bound}")
        return wrong, len(world.network.kinds_of_writes[0])


def test_a_minimum_that_changes_all_the_time_ends_no_preemption() -> None:
    wrong, writes = flap()
    assert not wrong
    # Once in each part of the story the process is replaced by another.
    for at in (writes // 2, 3 * writes // 4):
        assert not flap(CrashPoint(at, is_before=True))[0]


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_a_minimum_that_changes_all_the_time_with_a_crash_at_every_write() -> None:
    for at in range(1, flap()[1] + 1):
        for is_before in (True, False):
            assert not flap(CrashPoint(at, is_before))[0], (at, is_before)


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_more_sieges() -> None:
    play(range(IN_CI, MOST))
    play_debts(range(4, MOST))
    crash_everywhere(range(20))
