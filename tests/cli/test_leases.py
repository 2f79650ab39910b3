"""Who leads, as the Leases say."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.cli.test_overview import make_lease

from koord.answers.leaders import NOBODY, Leader, describe_absence
from koord.cli.leases import read_leader
from koord.kube.errors import Forbidden, KubeError, NotFound


class Leases:
    """A client that finds some of the Leases."""

    def __init__(self, error: KubeError, **leases: Any) -> None:
        self._error, self._leases = error, leases

    async def get(self, path: str, _: type) -> Any:
        name = path.rpartition("/")[2].replace("-", "_")
        if name not in self._leases:
            raise self._error
        return self._leases[name]


def read(error: type[KubeError] = NotFound, **leases: Any) -> Leader | None:
    return asyncio.run(read_leader(Leases(error(404, "", ""), **leases)))  # type: ignore[arg-type]


def test_the_one_that_leads_is_found_beside_a_lease_that_was_left() -> None:
    now = datetime.now(UTC).isoformat()
    leader = read(koord_operators=make_lease(), koord_placement=make_lease(now, "host_2"))
    assert leader is not None
    assert leader.holder == "host_2"
    assert not list(describe_absence(leader))


@pytest.mark.parametrize(
    ("leader", "warning"),
    [
        (read(koord_operators=make_lease()), "nobody leads, the operators stopped"),
        (read(), "no operators have run in namespace koord-system"),
    ],
)
def test_it_is_told_that_nobody_leads(leader: Leader, warning: str) -> None:
    (absence,) = describe_absence(leader)
    assert absence.startswith(warning)


def test_without_the_right_to_read_leases_nothing_is_told() -> None:
    assert read() is NOBODY
    leader = read(Forbidden)
    assert leader is None
    assert not list(describe_absence(leader))
