"""What runs, as units that end together: for looking ahead.

Pods that belong to their nodes never end by themselves, so they are none of these.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from koord.core.model.pods import Pod
from koord.core.queue.eta import Ending
from koord.core.queue.run_time import Knowledge, RunTime, end_of, start_of


def find_endings(
    pods_of_nodes: Iterable[Pod], run_time_of: Callable[[Sequence[Pod]], RunTime], now: float
) -> Iterator[Ending]:
    """Yield all that uses nodes, by name, with when it is expected to end."""
    units: dict[str, list[Pod]] = {}
    for pod in pods_of_nodes:
        if not (pod.node or pod.recorded) or not pod.planned_node:
            continue
        if pod.phase.is_terminal or is_pinned(pod):
            continue
        if pod.is_terminating:
            end = max(now, pod.gone_by or now + pod.grace)
            yield Ending(pod.title, (pod,), end, Knowledge.DECLARED, is_whole=pod.gang is None)
        else:
            key = pod.title if pod.gang is None else pod.gang.key
            units.setdefault(key, []).append(pod)
    for name, pods in sorted(units.items()):
        yield _make_ending(name, tuple(pods), run_time_of(pods), now)


def is_pinned(pod: Pod) -> bool:
    """Whether a pod was created for its node."""
    return any(owner.is_of_one_node for owner in pod.owners)


def _make_ending(name: str, pods: tuple[Pod, ...], run_time: RunTime, now: float) -> Ending:
    start = start_of(pods, int(now))
    bound = end_of(run_time, start, int(now))
    if bound is None:
        return Ending(name, pods, None)
    end = bound.at
    if run_time.expected is not None:
        end = min(end, _next_double(start, max(run_time.expected, 1), now))
    return Ending(name, pods, end, run_time.level, bound=bound.at)


def _next_double(start: int, length: int, now: float) -> int:
    """Return the end of what has been expected to take so long: twice as long once it is passed."""
    while start + length <= now:
        length *= 2
    return start + length
