"""Which members of a gang are done: they have succeeded, and need neither to wait nor to run.

The decision, the status, repairs and advice all ask here, so that they count the same members.

A member is done if it has succeeded on a node. A phase alone proves nothing: whoever may write it
could let a gang start below its minimum with pods that no node has ever seen.

Pods of an earlier run do not count for a new one: a job that is created again under the same
PodGroup must start as a whole, whatever its predecessor has left behind. Members are of one run if
they have the same controller or were released together, be it through others, of all gangs of the
group. Members without a controller are of one run until the minimum of every gang is done. So a
done member counts if

* nobody of its group lives: nothing is to be decided;
* or somebody of its run lives;
* or the group still lacks members, and others that were released with it are gone: those that wait
  may be their successors.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from koord.core.gang.cache import GangCache
from koord.core.gang.tally import Bond, bond_of
from koord.core.gang_model import GangKey
from koord.core.pods import Pod

_Mark: TypeAlias = tuple[str, str]
"""What all members of a run have in common: its kind and its id."""
_BARE: Final[_Mark] = ("controller", "")


def count_done(cache: GangCache, key: GangKey) -> int:
    """Count the members of a gang that are done; with ``compat``, all that have succeeded."""
    tally = cache.tally(key)
    if cache.compat or not tally.done:
        return tally.succeeded if cache.compat else 0
    return sum(tally.bonds[bond].done for bond in _find_of_run(cache, key) & tally.bonds.keys())


def find_done(cache: GangCache, key: GangKey) -> tuple[Pod, ...]:
    """Return the members of a gang that are done and count for the run that it is in."""
    tally = cache.tally(key)
    if cache.compat or not tally.done:
        return ()
    of_run = _find_of_run(cache, key)
    return tuple(pod for pod in tally.done.values() if bond_of(pod) in of_run)


def count_needed(cache: GangCache, key: GangKey) -> int:
    """Count the members that a gang needs besides those that are done."""
    spec = cache.spec(key)
    return 0 if spec is None else max(0, spec.min_member - count_done(cache, key))


def has_succeeded(cache: GangCache, key: GangKey) -> bool:
    """Whether nothing lives of a gang of which enough members have done their work."""
    spec, done = cache.spec(key), count_done(cache, key)
    return spec is not None and not cache.tally(key).alive and done >= max(spec.min_member, 1)


def _find_of_run(cache: GangCache, key: GangKey) -> frozenset[Bond]:
    """Return the bonds of the run that the living members of a group are in."""
    group = cache.group(key)
    if group.excess is not None:
        return _find_in(cache, (key,))
    return cache.recall(key, _find_of_group)


def _find_of_group(cache: GangCache, key: GangKey) -> frozenset[Bond]:
    return _find_in(cache, cache.group(key).gangs)


def _find_in(cache: GangCache, gangs: tuple[GangKey, ...]) -> frozenset[Bond]:
    """Return the bonds of the run of some gangs, from counts: gangs are large, and bonds few."""
    members: Counter[Bond] = Counter()
    living: set[Bond] = set()
    for gang in gangs:
        for bond, counts in cache.tally(gang).bonds.items():
            members[bond] += counts.total
            if counts.alive:
                living.add(bond)
    if not living:
        return frozenset(members)
    is_complete = all(_is_complete(cache, gang) for gang in gangs)
    of_run = _follow(living, members, ignored=_BARE if is_complete else None)
    if is_complete:
        return frozenset(bond for bond in of_run if set(_marks_of(bond)) != {_BARE})
    starts = Counter[str]()
    for bond, count in members.items():
        starts[bond.start] += count
    return frozenset(bond for bond in members if bond in of_run or not _is_whole(bond, starts))


def _is_complete(cache: GangCache, gang: GangKey) -> bool:
    spec = cache.spec(gang)
    return spec is not None and len(cache.tally(gang).done) >= max(spec.min_member, 1)


def _follow(living: Iterable[Bond], bonds: Iterable[Bond], *, ignored: _Mark | None) -> set[Bond]:
    """Return all bonds of the runs of the living ones."""
    bearers: defaultdict[_Mark, list[Bond]] = defaultdict(list)
    for bond in bonds:
        for mark in _marks_of(bond):
            if mark != ignored:
                bearers[mark].append(bond)
    found = set(living)
    queue = list(found)
    while queue:
        for mark in _marks_of(queue.pop()):
            fresh = set(bearers.pop(mark, ())) - found
            queue += fresh
            found |= fresh
    return found


def _marks_of(bond: Bond) -> Iterator[_Mark]:
    yield "controller", bond.controller
    if bond.start:
        yield "start", bond.start


def _is_whole(bond: Bond, starts: Mapping[str, int]) -> bool:
    """Whether all members that were released together are still there."""
    return bool(bond.start) and starts[bond.start] >= bond.size
