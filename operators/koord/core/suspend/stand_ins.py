"""The pods that stand for those of a Job that does not make them yet."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from koord.core.engine.node_table import NodeTable
from koord.core.model.gangs import GangMembership
from koord.core.model.pods import Handling, Pod
from koord.core.suspend.model import MOST_PODS, QueuedJob


def make_stand_ins(
    job: QueuedJob, gang: GangMembership, priorities: Sequence[int]
) -> Iterator[tuple[int, Pod]]:
    """Yield one pod for each that a Job makes, with the number of its set of members.

    ``priorities`` are those of the sets. Nobody is evicted for them, and there is nothing to evict.
    """
    number = 0
    for at, member_set in enumerate(job.sets):
        template = replace(
            member_set.template,
            namespace=job.namespace,
            handling=Handling.STAND_IN,
            gang=gang,
            priority=priorities[at],
            created=job.created,
            node="",
            is_gated=False,
            never_preempts=True,
            is_protected=True,
            owners=(),
        )
        # Whoever is resumed may change how many pods it makes: what is held does not grow.
        for _ in range(min(member_set.count, MOST_PODS)):
            uid, name = f"{job.uid}/{at}/{number}", f"{job.title}-{number}"
            yield at, replace(template, uid=uid, name=name)
            number += 1


def job_of(stand_in: Pod) -> str:
    """Return the uid of the Job that a stand-in is made for."""
    return stand_in.uid.partition("/")[0]


def has_room(table: NodeTable, node: str, pod: Pod) -> bool:
    """Whether what a pod requests is free on a node; nothing is known of one that is not there."""
    row = table.row_of.get(node)
    amounts = ((table.columns.get(key), amount) for key, amount in pod.shape.requests)
    return row is None or all(
        table.allocatable[column, row] - table.used[column, row] >= amount
        for column, amount in amounts
        if column is not None
    )
