"""The pods that stand for others that do not exist yet: of a Job, or of a gang's later stage."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from koord.core.engine.node_table import NodeTable
from koord.core.model.gangs import GangMembership
from koord.core.model.pods import Handling, Pod
from koord.core.suspend.model import MOST_PODS, MemberSet


@dataclass(frozen=True, slots=True)
class StoodFor:
    """Whom stand-ins are made for: what their uids and names begin with, and since when it is."""

    uid: str
    title: str
    namespace: str
    created: float


def make_stand_ins(
    stood_for: StoodFor,
    sets: Sequence[MemberSet],
    gang: GangMembership,
    priorities: Sequence[int],
) -> Iterator[tuple[int, Pod]]:
    """Yield one pod for each that is to come, with the number of its set of members.

    ``priorities`` are those of the sets. Nobody is evicted for them, and there is nothing to evict.
    """
    number = 0
    for at, member_set in enumerate(sets):
        template = replace(
            member_set.template,
            namespace=stood_for.namespace,
            handling=Handling.STAND_IN,
            gang=gang,
            priority=priorities[at],
            created=stood_for.created,
            node="",
            is_gated=False,
            never_preempts=True,
            is_protected=True,
            owners=(),
        )
        # Whoever is resumed may change how many pods it makes: what is held does not grow.
        for _ in range(min(member_set.count, MOST_PODS)):
            uid, name = f"{stood_for.uid}/{at}/{number}", f"{stood_for.title}-{number}"
            yield at, replace(template, uid=uid, name=name)
            number += 1


def owner_of_stand_in(stand_in: Pod) -> str:
    """Return the uid of what a stand-in is made for."""
    return stand_in.uid.rsplit("/", 2)[0]


def has_room(table: NodeTable, node: str, pod: Pod) -> bool:
    """Whether what a pod requests is free on a node; nothing is known of one that is not there."""
    row = table.row_of.get(node)
    amounts = ((table.columns.get(key), amount) for key, amount in pod.shape.requests)
    return row is None or all(
        table.allocatable[column, row] - table.used[column, row] >= amount
        for column, amount in amounts
        if column is not None
    )
