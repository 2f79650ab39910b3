"""What the pods of a job may ask besides resources, drawn once and the same for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from tests.builders import PodBuilder, select_labels, select_pods
from tests.recorded.world import APPS, HOST, World

from koord.core.model.selectors import Requirement, SelectorOperator, SelectorTerm

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from koord.core.model.constraints import PodSelector

    Trait: TypeAlias = Callable[[PodBuilder], PodBuilder]


def choose_traits(world: World, app: str, features: set[str]) -> list[Trait]:
    """Choose some of what pods of this world may ask, and note what was chosen."""
    dice, found = world.dice, []
    for name in sorted(world.traits & MAKERS.keys()):
        if dice.random() < 0.25:
            features.add(name)
            found.append(MAKERS[name](world, app))
    return found


def _select(world: World, _: str) -> Trait:
    key, value = world.dice.choice((("disk", "ssd"), ("disk", "hdd"), ("zone", "z0")))
    return lambda pod: pod.select(key, value)


def _require(world: World, _: str) -> Trait:
    terms = [_node_term(world.dice) for _ in range(world.dice.randint(1, 2))]
    return lambda pod: pod.terms(*terms)


def _like(world: World, _: str) -> Trait:
    term, weight = _node_term(world.dice), world.dice.randint(1, 100)
    return lambda pod: pod.likes_nodes(weight, term)


def _tolerate(world: World, _: str) -> Trait:
    if world.dice.random() < 0.5:
        return lambda pod: pod.tolerates("dedicated", "x", "NoSchedule")
    return lambda pod: pod.tolerates("dedicated", operator="Exists")


def _take_port(world: World, _: str) -> Trait:
    port, protocol = world.dice.choice((8080, 8081)), world.dice.choice(("TCP", "TCP", "UDP"))
    return lambda pod: pod.host_port(port, protocol)


def _near(world: World, app: str) -> Trait:
    pods, key = _pods(world.dice, app, own=0.7), world.dice.choice(("zone", "rack", HOST))
    return lambda pod: pod.near(pods, key)


def _apart(world: World, app: str) -> Trait:
    pods, key = _pods(world.dice, app, own=0.5), world.dice.choice((HOST, HOST, "rack"))
    return lambda pod: pod.apart(pods, key)


def _prefer(world: World, app: str) -> Trait:
    pods, key = _pods(world.dice, app, own=0.5), world.dice.choice(("zone", "rack", HOST))
    weight = world.dice.choice((-50, 10, 80))
    return lambda pod: pod.prefers(weight, pods, key)


def _spread(world: World, app: str) -> Trait:
    dice = world.dice
    pods, key, skew = _pods(dice, app, own=0.8), dice.choice(("zone", HOST)), dice.randint(1, 3)
    least, honors = dice.choice((1, 1, 2, 4)), dice.random() < 0.3
    return lambda pod: pod.spread(pods, key, skew, min_domains=least, honors_taints=honors)


def _even(world: World, app: str) -> Trait:
    dice = world.dice
    pods, key, skew = _pods(dice, app, own=0.8), dice.choice(("zone", HOST)), dice.randint(1, 3)
    return lambda pod: pod.even(pods, key, skew)


def _claim(world: World, _: str) -> Trait:
    names = [one.key.partition("/")[2] for one in world.claims]
    chosen = world.dice.sample(names[:6] * 4 + names[6:], world.dice.choice((1, 1, 2)))
    return lambda pod: pod.claims(*sorted(set(chosen)))


def _attract(world: World, _: str) -> Trait:
    selector = world.dice.choice(("blue", "red"))
    return lambda pod: pod.attraction(selector)


def _pods(dice: Random, app: str, own: float) -> PodSelector:
    """Select the pods of the job, or those of some application, here or in other namespaces."""
    name = app if dice.random() < own else dice.choice(APPS)
    if dice.random() < 0.15:
        return select_pods(by_labels=select_labels(team=dice.choice("ab")), app=name)
    return select_pods("default", "lab", app=name) if dice.random() < 0.3 else select_pods(app=name)


def _node_term(dice: Random) -> SelectorTerm:
    one = dice.choice(
        (
            Requirement("disk", SelectorOperator.IN, ("ssd",)),
            Requirement("zone", SelectorOperator.NOT_IN, ("z1",)),
            Requirement("zone", SelectorOperator.EXISTS),
            Requirement("dedicated", SelectorOperator.DOES_NOT_EXIST),
            Requirement("gen", SelectorOperator.GT, ("2",)),
            Requirement("gen", SelectorOperator.LT, ("4",)),
        )
    )
    if dice.random() < 0.1:
        name = Requirement("metadata.name", SelectorOperator.IN, (f"n{dice.randint(0, 9):02}",))
        return SelectorTerm((), (name,))
    return SelectorTerm((one,))


MAKERS: dict[str, Callable[[World, str], Trait]] = {
    "node selector": _select,
    "node affinity": _require,
    "preferred nodes": _like,
    "toleration": _tolerate,
    "host port": _take_port,
    "affinity": _near,
    "anti-affinity": _apart,
    "preferred affinity": _prefer,
    "spread": _spread,
    "soft spread": _even,
    "volume": _claim,
    "attraction": _attract,
}
"""Trait -> who makes it, for pods of an application in a world."""
