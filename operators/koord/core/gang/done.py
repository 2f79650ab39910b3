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

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from koord.core.gang.cache import GangCache
from koord.core.gang.tally import is_done
from koord.core.gang_model import GangKey
from koord.core.pods import Pod

_Mark: TypeAlias = tuple[str, str]
"""What all members of a run have in common: its kind and its id."""
_BARE: Final[_Mark] = ("controller", "")


def count_done(cache: GangCache, key: GangKey) -> int:
    """Count the members of a gang that are done; with ``compat``, all that have succeeded."""
    return cache.tally(key).succeeded if cache.compat else len(find_done(cache, key))


def find_done(cache: GangCache, key: GangKey) -> tuple[Pod, ...]:
    """Return the members of a gang that are done and count for the run that it is in."""
    if cache.compat or not cache.tally(key).done:
        return ()
    if cache.group(key).excess is not None:
        return _find_of_run(cache, (key,))[key]
    return cache.recall(key, _find_in_group)[key]


def _find_in_group(cache: GangCache, key: GangKey) -> dict[GangKey, tuple[Pod, ...]]:
    return _find_of_run(cache, cache.group(key).gangs)


def _find_of_run(cache: GangCache, gangs: tuple[GangKey, ...]) -> dict[GangKey, tuple[Pod, ...]]:
    """Return by gang the done members of the run that the living members are in."""
    done = {gang: tuple(filter(is_done, cache.members(gang).values())) for gang in gangs}
    members = [pod for gang in gangs for pod in cache.members(gang).values()]
    living = [pod for pod in members if pod.is_alive]
    if not living:
        return done
    is_complete = all(_is_complete(cache, gang, len(pods)) for gang, pods in done.items())
    of_run = _follow(living, members, ignored=_BARE if is_complete else None)
    sizes = Counter(_start_of(pod) for pod in members)

    def counts(pod: Pod) -> bool:
        return pod.uid in of_run or not (is_complete or _is_whole(pod, sizes))

    return {gang: tuple(filter(counts, pods)) for gang, pods in done.items()}


def _is_complete(cache: GangCache, gang: GangKey, done: int) -> bool:
    spec = cache.spec(gang)
    return spec is not None and done >= max(spec.min_member, 1)


def _follow(living: Iterable[Pod], members: Iterable[Pod], *, ignored: _Mark | None) -> set[str]:
    """Return the uids of all members of the runs of the living ones."""
    bearers: dict[_Mark, list[Pod]] = {}
    for pod in members:
        for mark in _marks_of(pod):
            if mark != ignored:
                bearers.setdefault(mark, []).append(pod)
    queue = list(living)
    found = {pod.uid for pod in queue}
    while queue:
        for mark in _marks_of(queue.pop()):
            mates = bearers.pop(mark, ())
            queue += (pod for pod in mates if pod.uid not in found)
            found.update(pod.uid for pod in mates)
    return found


def _marks_of(pod: Pod) -> Iterator[_Mark]:
    owners = sorted(pod.owners, key=lambda owner: not owner.is_controller)
    yield "controller", owners[0].uid if owners else ""
    if start := _start_of(pod):
        yield "start", start


def _start_of(pod: Pod) -> str:
    """Return what identifies the pods that were released with this one; empty if none were."""
    if pod.recorded is None or pod.recorded.member_count < 2:
        return ""
    return pod.recorded.start_id or pod.recorded.plan_id


def _is_whole(pod: Pod, sizes: Mapping[str, int]) -> bool:
    """Whether all members that were released with a pod are still there."""
    start = _start_of(pod)
    if not start or pod.recorded is None:
        return False
    return sizes[start] >= pod.recorded.member_count
