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

A gang with sub-groups needs more than its minimum: as many complete sub-groups as it says.

Pods that have succeeded may be removed before the others have ended. So the status of a PodGroup
remembers the bonds of its members (controller, release) and how many of each are done, by
sub-group. What is gone counts only if somebody who lives is bound to it: uids of controllers and
ids of releases are never used again, so no later run can inherit it.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias

from koord.core.gang.cache import Gang, GangCache, GangStates
from koord.core.gang.group import Group
from koord.core.gang.tally import bond_of
from koord.core.model.gangs import (
    ROOT,
    Bond,
    BondRecord,
    GangKey,
    GangSource,
    GangSpec,
    RunRecord,
    fill,
    tree_of,
)
from koord.core.model.pods import Pod

_Mark: TypeAlias = tuple[str, str]
"""What all members of a run have in common: its kind and its id."""
MAX_RECORDED: Final = 16
"""Bonds that the status of a PodGroup remembers."""
MAX_SUB_GROUPS: Final = 256
"""Sub-groups that it remembers, of all bonds; members of others count for the gang itself."""
MAX_ID: Final = 64
"""Characters of their ids; users may write longer ones, which are not remembered."""


def count_done(cache: GangCache, key: GangKey) -> int:
    """Count the members of a gang that are done; with ``compat``, all that have succeeded."""
    gang = cache.gang(key)
    if cache.compat:
        return gang.tally.succeeded
    # Most gangs have none, and are asked often.
    if not (gang.tally.done or gang.runs or (gang.spec is not None and gang.spec.finished)):
        return 0
    return count_done_by_sub_group(cache, key).total()


def count_done_by_sub_group(cache: GangCache, key: GangKey) -> Counter[str]:
    """Count the members of a gang that are done, those of no sub-group in ``ROOT``."""
    gang, counts = cache.gang(key), Counter[str]()
    if _is_found(gang) and not cache.compat:
        return _count_done_of_owner(gang)
    if cache.compat or not (gang.tally.done or gang.runs):
        return counts
    run = _find_run(cache, key)
    for bond in run.counted & gang.tally.bonds.keys():
        counts += _count_there(gang, bond)
    for record in _records(gang):
        if record.bond in run.linked:
            counts += _count_gone(gang, record)
    return counts


def _is_found(gang: Gang) -> bool:
    return gang.spec is not None and gang.spec.source is GangSource.OWNER


def _count_done_of_owner(gang: Gang) -> Counter[str]:
    """Count what is done of a gang that was found from an owner, whose members are of one run.

    The owner knows, too, of members that are gone or were given up. It needs its minimum, or all
    that is not finished if that is less: what it has to do beyond its minimum is done first.
    """
    spec, done = gang.spec, Counter[str]()
    for counts in gang.tally.bonds.values():
        done += _by_listed(spec, counts.done)
    if spec is None or spec.sub_groups is not None:
        return done
    finished = max(spec.finished, done.total())
    return +Counter({ROOT: max(0, finished - max(0, spec.total - spec.min_member))})


def find_done(cache: GangCache, key: GangKey) -> tuple[Pod, ...]:
    """Return the members of a gang that are done and count for the run that it is in."""
    tally = cache.tally(key)
    if cache.compat or not tally.done:
        return ()
    counted = _find_run(cache, key).counted
    return tuple(pod for pod in tally.done.values() if bond_of(pod) in counted)


def record_run(cache: GangCache, key: GangKey) -> RunRecord:
    """Return what the status of a PodGroup is to remember: what is there, and what is gone.

    That of a run is dropped when another one has begun.
    """
    gang = cache.gang(key)
    kept = {
        bond: _count_there(gang, bond)
        for bond, counts in gang.tally.bonds.items()
        if (bond.start or counts.done) and max(map(len, bond[:2])) <= MAX_ID
    }
    if gang.runs:
        run = _find_run(cache, key)
        for record in _records(gang):
            if record.bond in run.linked or not run.lives:
                kept[record.bond] = kept.get(record.bond, Counter()) + _count_gone(gang, record)
    most = sorted(kept.items(), key=lambda item: (-item[1].total(), item[0]))[:MAX_RECORDED]
    return tuple(_make_records(sorted(most)))


def _make_records(counts: Iterable[tuple[Bond, Counter[str]]]) -> Iterator[BondRecord]:
    left = MAX_SUB_GROUPS
    for bond, done in counts:
        named = sorted((name, count) for name, count in done.items() if name != ROOT)[:left]
        left -= len(named)
        yield BondRecord(bond, done.total(), tuple(named))


def _records(gang: Gang) -> Iterable[BondRecord]:
    """Return one record per bond: who may write statuses could repeat some."""
    return {record.bond: record for record in gang.runs}.values()


def _count_there(gang: Gang, bond: Bond) -> Counter[str]:
    """Count members of a bond that are done, and still there."""
    counts = gang.tally.bonds.get(bond)
    return Counter() if counts is None else _by_listed(gang.spec, counts.done)


def _count_gone(gang: Gang, record: BondRecord) -> Counter[str]:
    """Count members of a bond that were done, and of which nothing is left but the record."""
    if record.done < 1:
        return Counter()
    there, was = _count_there(gang, record.bond), _by_listed(gang.spec, record.by_sub_group())
    gone, most = was - there, max(was.total() - there.total(), 0)
    # The sub-group of a member may be changed after it was counted.
    for name in sorted(gone, reverse=True):
        gone[name] -= min(gone[name], max(gone.total() - most, 0))
    return +gone


def _by_listed(spec: GangSpec | None, counts: Mapping[str, int]) -> Counter[str]:
    """Count by the sub-groups that a gang lists; members of others are in ``ROOT``."""
    by_listed = Counter[str]()
    tree = None if spec is None else spec.sub_groups
    for name, count in counts.items():
        by_listed[ROOT if tree is None else tree.find(name)] += count
    return +by_listed


def count_needed(cache: GangCache, key: GangKey) -> int:
    """Count the members that a gang needs besides those that are done."""
    spec = cache.spec(key)
    return 0 if spec is None else max(0, spec.min_member - count_done(cache, key))


def has_succeeded(cache: GangCache, key: GangKey) -> bool:
    """Whether nothing lives of a gang of which enough members have done their work."""
    return not cache.tally(key).alive and is_all_done(cache, key)


def is_all_done(cache: GangCache, key: GangKey) -> bool:
    """Whether the members that are done are all that a gang needs."""
    spec = cache.spec(key)
    if spec is None or cache.compat:
        return spec is not None and count_done(cache, key) >= max(spec.min_member, 1)
    return _is_enough(spec, count_done_by_sub_group(cache, key))


def _is_enough(spec: GangSpec, done: Counter[str]) -> bool:
    if done.total() < max(spec.min_member, 1):
        return False
    tree = tree_of(spec)
    return tree is None or not fill(tree, done).is_short(ROOT)


class _RunBonds(NamedTuple):
    """The run that the living members of a group are in."""

    counted: frozenset[Bond]
    """Bonds of pods that are there, whose done members count."""
    linked: frozenset[Bond]
    """Bonds, recorded ones included, that living members are linked with."""
    lives: bool


def _find_run(cache: GangCache, key: GangKey) -> _RunBonds:
    group = cache.group(key)
    if group.exceeded_limit is not None:
        return _find_in([cache.gang(key)])
    return cache.recall(key, _find_run_of_group)


def _find_run_of_group(_: GangCache, __: Group, states: GangStates) -> _RunBonds:
    return _find_in(states.values())


def _find_in(states: Collection[Gang]) -> _RunBonds:
    """Find the run of some gangs from counts: gangs are large, and bonds few."""
    members: Counter[Bond] = Counter()
    living: set[Bond] = set()
    for gang in states:
        for bond, counts in gang.tally.bonds.items():
            members[bond] += counts.total
            if counts.alive:
                living.add(bond)
    if not living:
        return _RunBonds(frozenset(members), frozenset(), lives=False)
    is_complete = all(_is_complete(gang) for gang in states)
    gone = {record.bond for gang in states for record in gang.runs} - members.keys()
    bare: frozenset[Bond] = frozenset() if is_complete else frozenset(members)
    followed = _follow(living, {*members, *gone}, bare)
    linked = frozenset(bond for bond in followed if any(_marks_of(bond, bare)))
    counted = linked & members.keys()
    if not is_complete:
        starts = Counter[str]()
        for bond, count in members.items():
            starts[bond.start] += count
        counted |= {bond for bond in members if not _is_whole(bond, starts)}
    return _RunBonds(counted, linked, lives=True)


def _is_complete(gang: Gang) -> bool:
    done = Counter[str]()
    for bond in gang.tally.bonds:
        done += _count_there(gang, bond)
    for record in _records(gang):
        done += _count_gone(gang, record)
    return gang.spec is not None and _is_enough(gang.spec, done)


def _follow(living: Iterable[Bond], bonds: Iterable[Bond], bare: Collection[Bond]) -> set[Bond]:
    """Return all bonds of the runs of the living ones.

    Those in ``bare`` are linked with each other if they have no controller.
    """
    bearers: defaultdict[_Mark, list[Bond]] = defaultdict(list)
    for bond in bonds:
        for mark in _marks_of(bond, bare):
            bearers[mark].append(bond)
    followed = set(living)
    queue = list(followed)
    while queue:
        for mark in _marks_of(queue.pop(), bare):
            fresh = set(bearers.pop(mark, ())) - followed
            queue += fresh
            followed |= fresh
    return followed


def _marks_of(bond: Bond, bare: Collection[Bond]) -> Iterator[_Mark]:
    if bond.controller or bond in bare:
        yield "controller", bond.controller
    if bond.start:
        yield "start", bond.start


def _is_whole(bond: Bond, starts: Mapping[str, int]) -> bool:
    """Whether all members that were released together are still there."""
    return bool(bond.start) and starts[bond.start] >= bond.size
