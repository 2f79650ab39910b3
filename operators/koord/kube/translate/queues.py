"""What pods say about their turn in a queue, and about their run."""

from collections.abc import Hashable, Mapping
from typing import Final

from typing_extensions import override

from koord.api.gang import MOST_RETRY
from koord.api.keys import operators
from koord.api.run_terms import ANNOTATIONS, LONGEST_SECONDS, parse_run_settings
from koord.core.model.pods import PodShape
from koord.core.queue.reasons import NAME
from koord.core.queue.run_time import NO_HINTS, QueueHints
from koord.kube.kind import PodReader
from koord.kube.translate.run_terms import make_run_terms
from koord.kube.wire import WirePod

_NO_TEXTS: Final[Mapping[str, str]] = {}
_READ: Final = (operators.QUEUE_HOLD, operators.QUEUE_RETRY, *ANNOTATIONS)


class QueuePodReader(PodReader):
    """Reads whether the owner of a pod holds it back, and what is known of its run time."""

    name = NAME

    @override
    def read_pod(self, wire: WirePod, shape: PodShape) -> Hashable | None:
        annotations = wire.metadata.annotations or _NO_TEXTS
        deadline = wire.spec.active_deadline_seconds
        if deadline is None and annotations.keys().isdisjoint(_READ):
            return None
        hints = QueueHints(
            is_held=annotations.get(operators.QUEUE_HOLD) == "true",
            deadline=None if deadline is None else min(max(deadline, 1), LONGEST_SECONDS),
            terms=make_run_terms(parse_run_settings(annotations, _ignore)),
            retry=annotations.get(operators.QUEUE_RETRY, "")[:MOST_RETRY],
        )
        return None if hints == NO_HINTS else hints


def _ignore(_key: str, _value: str, _problem: str, _in_force: str) -> None:
    """Invalid values are reported by whoever reports keys without effect."""
