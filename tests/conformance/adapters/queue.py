"""Queues: settings, order of turns, and use with a half-life."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pydantic import TypeAdapter
from pydantic.alias_generators import to_snake
from tests.conformance.compare import Exact, Ordered

from koord.api.parse import InvalidObject, JsonAnnotation
from koord.api.queue import QueueSpec, values_of
from koord.core.queue import usage
from koord.core.queue.counted_room import CountedNode
from koord.core.queue.order import (
    Aging,
    OrderTerms,
    QueueQuota,
    Waiting,
    make_tournament,
)
from koord.core.queue.room import FOREVER, Run, UnitAsk
from koord.core.queue.settings import ALIASES, Across, settle
from koord.core.queue.simulation import SimulatedQuota, Simulation, TraceUnit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Fields = dict[str, Any]
QUEUE: Final = JsonAnnotation("queue", TypeAdapter(QueueSpec))
"""All settings; the annotation has those that have an effect."""


class Shares:
    """Ledgers of users, which no start changes: the cases give them."""

    def __init__(self, case: Fields) -> None:
        settings = case["settings"]
        self._is_used = settings.get("userFairness") == "Decayed"
        self._weights = settings.get("userWeights") or {}
        self._usage, self._capacity = case.get("usage") or {}, case.get("capacity") or {}

    def of(self, queue: str, user: str) -> Fraction:
        if not self._is_used:
            return Fraction(0)
        ledger = self._usage.get(queue, {}).get(user, {})
        return usage.share(ledger, self._capacity, self._weights.get(user, 1))

    def note_start(self, unit: Waiting) -> None:
        """Nothing changes."""


def order_units(case: Fields) -> Fields:
    settings = case["settings"]
    aging = Aging(settings["ageStep"], settings["ageTiers"])
    quotas = [
        QueueQuota(
            quota["name"], quota.get("parent", ""), quota["used"], quota["min"], quota["runtime"]
        )
        for quota in case["quotas"]
    ]
    units = {unit["name"]: unit for unit in case["units"]}
    waiting = [
        Waiting(
            unit["name"],
            unit["quota"],
            unit["user"],
            unit["priority"],
            unit["since"],
            unit["ask"],
            unit.get("headSince"),
            unit.get("protected"),
            unit.get("usedAtStart") or {},
            unit.get("repair", False),
        )
        for unit in case["units"]
        if not unit.get("held")
    ]
    across = Across(settings.get("acrossQuotas", "Guarantee"))
    terms = OrderTerms(case["now"], lambda _: aging, Shares(case), lambda _: across)
    tournament = make_tournament(quotas, waiting, terms)
    order = list(tournament.turns(starts=case["each"] == "starts"))
    competes = competition(case)
    ahead = {}
    for at, unit in enumerate(order):
        mine = units[unit.key]
        before = [other for other in order[:at] if competes(mine, units[other.key])]
        gpus = sum(other.ask.get("gpu", 0) for other in before)
        ahead[unit.key] = {"units": len(before), "gpus": gpus}
    return {"order": [unit.key for unit in order], "ahead": ahead}


def competition(case: Fields) -> Callable[[Fields, Fields], bool]:
    parents = {quota["name"]: quota.get("parent") for quota in case["quotas"]}

    def runs_on(unit: Fields) -> set[str]:
        return {
            node["name"]
            for node in case["nodes"]
            if node["gpus"] >= unit["shape"] and unit.get("pool") in {None, node.get("pool")}
        }

    def is_under(unit: Fields, quota: str | None) -> bool:
        here = unit["quota"]
        while here and here != quota:
            here = parents.get(here)
        return bool(quota) and here == quota

    return lambda unit, other: (
        bool(runs_on(unit) & runs_on(other))
        or is_under(unit, other.get("refusedByQuota"))
        or is_under(other, unit.get("refusedByQuota"))
    )


def decay_usage(case: Fields) -> Fields:
    decay = usage.Decay(case["tick"], case["halfLife"])
    ledgers: dict[str, usage.Ledger] = dict(case.get("ledgers") or {})
    for unit in case.get("units") or ():
        charges = {
            key: charge(decay, amount, unit, case["now"]) for key, amount in unit["amounts"].items()
        }
        ledgers[unit["user"]] = usage.add(ledgers.get(unit["user"], {}), charges)
    if case.get("rebase"):
        ledgers = dict(usage.rebase(ledgers))
    ranks: dict[Fraction, list[str]] = {}
    for user, weight in case["users"].items():
        share = usage.share(ledgers.get(user, {}), case["capacity"], weight)
        ranks.setdefault(share, []).append(user)
    table = usage.make_table(case["halfLife"] // case["tick"])
    return {
        "ledgers": Exact(ledgers),
        "order": Ordered(ranks[share] for share in sorted(ranks)),
        "table": Ordered(table[at] for at in case.get("tableAt") or ()),
    }


def charge(decay: usage.Decay, amount: int, unit: Fields, now: int) -> int:
    if unit["end"] is None:
        return decay.charge_running(amount, unit["start"], now)
    return decay.charge(amount, unit["start"], unit["end"])


def settle_settings(case: Fields) -> Fields:
    quotas = {quota["name"]: quota for quota in case["quotas"]}
    values = {name: read_last_valid(quota["annotations"]) for name, quota in quotas.items()}
    path = []
    at = case["quota"]
    while at:
        valid, _ = values[at]
        alias = ALIASES.get(quotas[at].get("queuePolicy", "")) if case.get("compat") else None
        path.insert(0, ({"policy": alias} if alias else {}) | dict(valid))
        at = quotas[at].get("parent")
    operators = values_of(QueueSpec.model_validate(case["operator"]))
    settings = settle(operators, path, compat=case.get("compat", False))
    names = {name: to_snake(name) for name in FIELDS}
    return {
        "settings": {name: getattr(settings, field) for name, field in names.items()},
        "invalid": sorted(name for name, (_, is_invalid) in values.items() if is_invalid),
    }


def read_last_valid(texts: list[str | None]) -> tuple[Mapping[str, Any], bool]:
    valid: Mapping[str, Any] = {}
    is_invalid = False
    for text in texts:
        spec = QUEUE.read({} if text is None else {QUEUE.key: text})
        is_invalid = isinstance(spec, InvalidObject)
        if not isinstance(spec, InvalidObject):
            valid = {} if spec is None else values_of(spec)
    return valid, is_invalid


def play_schedule(case: Fields) -> Fields:
    settings = settle({to_snake(name): value for name, value in case["settings"].items()}, ())
    simulation = Simulation(
        [make_node(node) for node in case["nodes"]],
        [make_quota(quota) for quota in case["quotas"]],
        lambda _: settings,
        least_gain=1,
        least_remainder=60,
    )
    for run in case.get("running") or ():
        bound = FOREVER if run["bound"] is None else run["bound"]
        job = UnitAsk(run["name"], run["quota"], 1, 0)
        simulation.add_run(Run(job, run["places"], run["start"], bound), run["end"])
    events: dict[int, list[Fields]] = {}
    for event in case.get("events") or ():
        events.setdefault(event["at"], []).append(event)
    simulation.play(
        [make_unit(unit) for unit in case["units"]],
        {at: partial(apply, simulation, happening) for at, happening in events.items()},
    )
    return {
        "start": {unit["name"]: simulation.starts.get(unit["name"]) for unit in case["units"]},
        "idleHeld": simulation.idle,
    }


def make_node(node: Fields) -> CountedNode:
    return CountedNode(node["name"], node["gpus"], node.get("block", ""), node.get("pool"))


def make_quota(quota: Fields) -> SimulatedQuota:
    return SimulatedQuota(quota["name"], quota["min"], quota["runtime"], quota["max"])


def make_unit(unit: Fields) -> TraceUnit:
    job = UnitAsk(
        unit["name"],
        unit["quota"],
        unit["pods"],
        unit["gpus"],
        unit["limit"],
        unit.get("gather", False),
        unit.get("pool"),
    )
    return TraceUnit(job, unit["arrival"], unit["duration"], unit["priority"])


def apply(simulation: Simulation, events: list[Fields]) -> None:
    for event in events:
        match event["kind"]:
            case "cordon":
                simulation.set_usable(event["node"], is_usable=False)
            case "return":
                simulation.set_usable(event["node"], is_usable=True)
            case "lose":
                simulation.lose(event["node"])
            case "delete":
                simulation.withdraw(event["unit"])
            case "quota":
                simulation.set_quota(make_quota({**event, "name": event["quota"]}))


FIELDS: Final = tuple(field.alias or name for name, field in QueueSpec.model_fields.items())
ADAPTERS: Final = {
    "queue_order": order_units,
    "queue_schedule": play_schedule,
    "queue_settings": settle_settings,
    "usage_decay": decay_usage,
}
