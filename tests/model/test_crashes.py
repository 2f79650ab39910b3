"""After a crash at any write the next process reaches the right end state.

``make soak`` runs more scenarios, each with a crash at every write; so does ``make laws`` of these.
"""

import pytest
from tests.model.crashes import Tally, try_all
from tests.model.network import CrashPoint
from tests.model.objects import OTHER_SCHEDULER, PodPlan, make_pod_group, node_of
from tests.model.scenarios import CAPACITY, FAMILIES, TROUBLES, make_scenario
from tests.model.steps import quiet
from tests.model.world import open_world

from koord.api.keys import operators

POINTS = 4
"""Of each scenario in every run: from its first write to its last, before some, after others."""
KINDS = len(FAMILIES) * len(CAPACITY)
SEEDS = [at + KINDS * ((at + 2 * (at // len(FAMILIES))) % len(TROUBLES)) for at in range(KINDS)]
"""Every family and capacity, each with another of the kinds of trouble."""


@pytest.mark.timeout(0)
@pytest.mark.parametrize("family", FAMILIES)
def test_crash_at_any_write_is_repaired(family: str) -> None:
    tally = Tally()
    for scenario in map(make_scenario, SEEDS):
        if scenario.family == family:
            try_all(scenario, tally, POINTS)
    assert tally.points > 8
    for story, violations in tally.broken:
        pytest.fail(f"{story}\n{violations}")


@pytest.mark.parametrize(
    ("scheduler", "gated"),
    [(OTHER_SCHEDULER, True), (operators.SCHEDULER_NAME, True), (operators.SCHEDULER_NAME, False)],
)
def test_only_waiting_gang_is_finished_after_a_crash(
    scheduler: str,
    gated: bool,  # noqa: FBT001
) -> None:
    """kube-scheduler binds the pod that was released; the others have no plan annotation yet."""
    with quiet(), open_world() as world:
        world.crash_at(CrashPoint(2, is_before=False))
        world.add_node("n0", 24)
        world.put_pod_group(make_pod_group("a", 3, (), "only-waiting"))
        world.create_pod(PodPlan("a-0", gang="a", scheduler=OTHER_SCHEDULER))
        for name in ("a-1", "a-2"):
            world.create_pod(PodPlan(name, gang="a", gated=gated, scheduler=scheduler))
        world.start()
        world.settle()
        assert sum(bool(node_of(pod)) for pod in world.pods()) == 3
