"""How failed placement attempts are counted."""

from tests.builders import make_pod, make_pod_group

from koord.controllers.placement_reports import AttemptCounter, Attempts
from koord.core.gang.cache import GangCache
from koord.core.model.plan import Demand, Unit

G, A = "default/g", "default/annotated"


def make_unit(*gangs: str) -> Unit:
    demands = tuple(Demand(gang, (make_pod("p").gang(gang).build(),), 1) for gang in gangs)
    return Unit(",".join(gangs), demands)


def make_attempts(told: int | None = None) -> AttemptCounter:
    gangs = GangCache()
    gangs.upsert_pod_group(make_pod_group(G)._set(attempts=told).build())
    gangs.upsert_pod(make_pod("x").annotation_gang(A, 1).build())
    return AttemptCounter(gangs)


def test_failed_attempts_are_counted_until_one_succeeds() -> None:
    attempts = make_attempts()
    assert attempts.of(G) == Attempts()
    attempts.fail(make_unit(G, A), 5.0)
    attempts.fail(make_unit(G), 9.0)
    assert attempts.of(G) == Attempts(2, 9.0)
    attempts.succeed(make_unit(G))
    attempts.fail(make_unit(G), 11.0)
    assert attempts.of(G) == Attempts(1, 11.0)


def test_count_continues_from_the_status() -> None:
    attempts = make_attempts(told=7)
    assert attempts.of(G) == Attempts(7)
    attempts.fail(make_unit(G), 2.0)
    assert attempts.of(G) == Attempts(8, 2.0)


def test_attempts_of_deleted_gangs_are_dropped() -> None:
    attempts = make_attempts()
    attempts.fail(make_unit(G, A), 5.0)
    assert attempts.of(A) == Attempts()
    attempts._gangs.remove_pod_group(G)
    attempts.drop_gone({G})
    assert attempts.of(G) == Attempts()
