"""Placeholders: created, replaced and handed over in an order that leaves no room to others."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.builders import make_node, make_pod
from tests.cluster import FakeCluster
from tests.objects import remove_reservation, upsert_reservation
from tests.reservation.make import make_reservation

from koord.controllers.placeholders import AGAIN_SECONDS, Placeholders
from koord.core.model.plan import Assignment
from koord.core.model.units import CPU
from koord.core.reservation.lifecycle import expire
from koord.core.reservation.model import (
    HoldProtection,
    Placeholder,
    ReservationInfo,
    ReservationUse,
)
from koord.core.reservation.placeholders import HoldState, assess
from koord.core.reservation.plugin import Reservations
from koord.kube.errors import Forbidden
from koord.kube.outcomes import Done, Outcome, Refused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from koord.core.model.units import Amounts

UID = "uid-r"


class Writer:
    """Writes into the cluster state; ``lags``: nothing is observed until :meth:`catch_up`."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.plugin = cluster.state.plugin(Reservations)
        self.log: list[str] = []
        self.lags = False
        self.refuses = False
        self.answer: Callable[[], Awaitable[Any]] = lambda: asyncio.sleep(0)
        """Called after a deletion was observed, before its answer arrives."""
        self._behind: list[tuple[Placeholder, bool]] = []
        self._count = 0

    async def create(self, reservation: ReservationInfo, requests: Amounts) -> Placeholder:
        return await self._create(reservation.status.node, reservation.uid, dict(requests))

    async def create_guard(self, node: str) -> Placeholder:
        return await self._create(node, "", {})

    async def delete(self, one: Placeholder) -> None:
        await self.answer()
        self.log.append(f"-{one.requests.get(CPU, 'guard')}")
        self._note(one, is_gone=True)
        await self.answer()

    async def _create(self, node: str, uid: str, requests: Amounts) -> Placeholder:
        await asyncio.sleep(0)
        if self.refuses:
            raise Forbidden(403, "Forbidden", "no")
        self._count += 1
        name = f"p{self._count}"
        made = Placeholder(name, name, node, uid, requests)
        self.log.append(f"+{requests.get(CPU, 'guard')}")
        self._note(made, is_gone=False)
        return made

    def _note(self, one: Placeholder, *, is_gone: bool) -> None:
        self._behind.append((one, is_gone))
        if not self.lags:
            self.catch_up()

    def catch_up(self) -> None:
        for one, is_gone in self._behind:
            self.plugin.note_placeholder(one, is_gone=is_gone)
        self._behind.clear()

    def lose(self) -> None:
        """Somebody else deletes all placeholders."""
        for one in list(self.plugin.placeholders.values()):
            self.plugin.note_placeholder(one, is_gone=True)

    def take(self) -> str:
        text, self.log = " ".join(self.log), []
        return text


class Straight:
    """All pods are bound at once."""

    async def bind(
        self, member: Assignment, write: Callable[[], Awaitable[Outcome]], waits: Any
    ) -> Outcome:
        return await write()


class Waits:
    def __init__(self) -> None:
        self.reasons: list[str] = []

    def note_waiting(self, member: Assignment, reason: Any) -> None:
        self.reasons.append(reason.text())

    def note_known(self, member: Assignment) -> None:
        pass


class Scene:
    """One node with 10 CPUs, of which a reservation holds 8 with placeholders."""

    def __init__(self, **fields: Any) -> None:
        self.cluster = FakeCluster()
        self.state = self.cluster.state
        self.cluster.nodes(make_node("n1").cpu(10000))
        self.reservation = make_reservation(protection=HoldProtection.PLACEHOLDER, **fields)
        upsert_reservation(self.state, self.reservation)
        self.writer, self.waits = Writer(self.cluster), Waits()
        self.now = 0.0
        self.reports: list[str] = []
        self.keeper = Placeholders(
            self.state,
            self.writer,
            Straight(),
            lambda _, text: self.reports.append(text),
            lambda: self.now,
        )

    async def update(self) -> str:
        for uid in dict.fromkeys([UID, *self.keeper.changed()]):
            await self.keeper.update(uid)
        return self.writer.take()

    async def own(self, name: str, cpu: int) -> Outcome:
        """Bind an owner, which is observed only after that."""
        use = ReservationUse(name, self.reservation.name, UID)
        pod = make_pod(name).requests(cpu=cpu).build()
        self.cluster.pods(pod)
        self.state.assume(pod.uid, "n1", (use,))

        async def write() -> Outcome:
            await asyncio.sleep(0)
            self.writer.log.append(name)
            return Done()

        outcome = await self.keeper.bind(Assignment(pod, "n1", (use,)), write, self.waits)
        if outcome == Done():
            self.state.upsert_pod(replace(pod, node="n1", allocations=(use,)))
        return outcome

    def held(self) -> HoldState:
        self.state.refresh()
        return assess(self.state, self.state.plugin(Reservations).accounts[UID])


@pytest.fixture(params=[False, True], ids=["observed", "lagging"])
async def scene(request: pytest.FixtureRequest) -> Scene:
    made = Scene()
    made.writer.lags = request.param
    return made


async def test_what_is_held_is_requested_once(scene: Scene) -> None:
    assert scene.held() is HoldState.MISSING
    assert await scene.update() == "+8000"
    assert await scene.update() == ""
    scene.writer.catch_up()
    assert await scene.update() == ""
    assert scene.held() is HoldState.PLACEHOLDER


async def test_an_owner_gets_the_room_behind_a_guard(scene: Scene) -> None:
    await scene.update()
    await scene.own("a", 3000)
    assert scene.writer.take() == "+guard -8000 a +5000 -guard"
    assert await scene.update() == ""
    scene.writer.catch_up()
    assert await scene.update() == ""
    assert scene.held() is HoldState.PLACEHOLDER


async def test_owners_that_arrive_together_share_one_guard(scene: Scene) -> None:
    await scene.update()
    await asyncio.gather(*(scene.own(name, 2000) for name in "abc"))
    assert scene.writer.take() == "+guard -8000 a b c +2000 -guard"


async def test_an_owner_that_arrives_at_the_end_opens_again(scene: Scene) -> None:
    await scene.update()

    async def late() -> None:
        while "+5000" not in scene.writer.log:  # noqa: ASYNC110 - a turn of the loop at a time
            await asyncio.sleep(0)
        await scene.own("b", 5000)

    await asyncio.gather(scene.own("a", 3000), late())
    assert scene.writer.take() == "+guard -8000 a +5000 -guard +guard -5000 b -guard"


async def test_nothing_is_changed_while_an_owner_is_on_its_way(scene: Scene) -> None:
    """It counts as being in the reservation from the plan on, but its room is held until then."""
    await scene.update()
    pod = make_pod("a").requests(cpu=3000).build()
    scene.cluster.pods(pod)
    scene.state.assume("a", "n1", (ReservationUse("a", "r", UID),))
    assert await scene.update() == ""


async def test_room_that_is_given_back_is_held_again(scene: Scene) -> None:
    await scene.update()
    await scene.own("a", 3000)
    scene.writer.take()
    scene.cluster.delete_pods("a")
    assert await scene.update() == "+3000"


async def test_less_room_is_replaced_behind_a_guard(scene: Scene) -> None:
    await scene.update()
    status = replace(scene.reservation.status, allocatable={CPU: 6000})
    upsert_reservation(scene.state, replace(scene.reservation, status=status))
    assert await scene.update() == "+guard -8000 +6000 -guard"


async def test_at_its_end_nothing_is_held(scene: Scene) -> None:
    await scene.update()
    ended = replace(scene.reservation, status=expire(scene.reservation.status))
    upsert_reservation(scene.state, ended)
    assert await scene.update() == "-8000"
    await scene.update()
    remove_reservation(scene.state, ended)
    assert await scene.update() == ""


async def test_one_that_somebody_deletes_is_created_again_later() -> None:
    scene = Scene()
    await scene.update()
    await scene.update()
    scene.writer.lose()
    assert await scene.update() == "", "whoever needed the room would take it again"
    scene.now += AGAIN_SECONDS
    assert await scene.update() == "+8000"


async def test_a_deletion_of_our_own_is_not_taken_for_a_loss() -> None:
    """The watch shows it before the API server has answered."""
    scene = Scene()
    await scene.update()
    await scene.update()
    updates: list[asyncio.Task[Any]] = []

    async def answer() -> None:
        updates.append(asyncio.create_task(scene.keeper.update(UID)))
        await asyncio.sleep(0)

    scene.writer.answer = answer
    await scene.own("a", 3000)
    await asyncio.gather(*updates)
    assert scene.writer.take() == "+guard -8000 a +5000 -guard"


async def test_room_that_others_took_is_named_and_the_rest_is_held() -> None:
    scene = Scene()
    scene.cluster.pods(make_pod("intruder").requests(cpu=5000).bound("n1"))
    assert scene.held() is HoldState.STOLEN
    assert await scene.update() == "+5000"
    scene.cluster.delete_pods("intruder")
    assert await scene.update() == "+3000"
    assert scene.held() is HoldState.PLACEHOLDER


async def test_guards_of_a_process_that_ended_are_deleted_after_its_work_is_done() -> None:
    scene = Scene()
    scene.writer.plugin.note_placeholder(Placeholder("g", "g", "n1", "", {}))
    assert await scene.update() == "+8000 -guard"


async def test_what_the_api_server_refuses_is_reported_and_does_not_keep_owners_waiting() -> None:
    scene = Scene()
    scene.writer.refuses = True
    assert await scene.keeper.update(UID) == AGAIN_SECONDS
    assert scene.reports == ["no"]
    await scene.own("a", 3000)
    assert scene.writer.take() == "a"


async def test_an_owner_waits_while_its_placeholder_cannot_be_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("koord.controllers.placeholders._OPEN_SECONDS", 0.0)
    scene = Scene()
    await scene.update()
    scene.writer.refuses = True

    async def recover() -> None:
        while not scene.waits.reasons:  # noqa: ASYNC110 - a turn of the loop at a time
            await asyncio.sleep(0)
        scene.writer.refuses = False

    await asyncio.gather(scene.own("a", 3000), recover())
    assert scene.writer.take() == "+guard -8000 a +5000 -guard"
    assert "403" in scene.waits.reasons[0]


async def test_an_owner_whose_placeholder_stays_gives_its_room_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("koord.controllers.placeholders._OPEN_SECONDS", 0.0)
    scene = Scene()
    await scene.update()
    scene.writer.refuses = True

    async def wait() -> None:
        while not scene.waits.reasons:  # noqa: ASYNC110 - a turn of the loop at a time
            await asyncio.sleep(0)
        scene.now += 61

    outcome, _ = await asyncio.gather(scene.own("a", 3000), wait())
    assert outcome == Refused(403, "no")
    assert scene.writer.take() == ""


async def test_a_reservation_without_the_annotation_has_none() -> None:
    scene = Scene()
    upsert_reservation(scene.state, replace(scene.reservation, protection=HoldProtection.LEDGER))
    assert await scene.update() == ""
    await scene.own("a", 3000)
    assert scene.writer.take() == "a"
    assert scene.held() is HoldState.LEDGER
