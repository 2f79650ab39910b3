"""A cycle of the leader as the file of a snapshot: what it planned with, and what it decided."""

from collections.abc import Sequence
from typing import Any

from koord.core.owners.model import OwnerObject
from koord.domains.registry import KINDS, find_more_kinds
from koord.kube.reflector import Absence
from koord.replay.decisions import make_decisions
from koord.replay.recorded import AssumedPod, RecordedCluster, RecordedTurn
from koord.replay.snapshot_file import SnapshotFile, SnapshotSource, write_snapshot
from koord.replay.values import is_value
from koord.runtime.cycle_snapshots import PlannedCycle


def encode_cycle(cycle: PlannedCycle) -> bytes:
    """Return the file of a cycle. It takes seconds for a large cluster."""
    return write_snapshot(
        SnapshotFile(
            record_cycle(cycle),
            make_decisions(cycle.units, cycle.plan),
            SnapshotSource.LEADER,
            cycle.unit,
            tuple(cycle.records()),
        )
    )


def record_cycle(cycle: PlannedCycle) -> RecordedCluster:
    """Return what a cycle planned with; kinds that planning does not read are left out."""
    planned = {kind.name for kind in (*KINDS, *find_more_kinds(*cycle.options))}
    replacements, partial = cycle.holds
    return RecordedCluster(
        now=cycle.cluster.now,
        values={
            kind.name: values
            for kind, values in cycle.cluster.values.items()
            if kind.name in planned or _are_owners(values)
        },
        options=tuple(filter(is_value, cycle.options)),
        compat=cycle.compat,
        hooks=cycle.hooks,
        assumed=tuple(AssumedPod(*each) for each in cycle.assumed),
        nominations=cycle.cluster.nominations,
        reclaim=cycle.reclaim,
        absences=tuple(
            (kind.name, absence.name)
            for kind, absence in cycle.cluster.absences.items()
            if absence is not Absence.NONE
        ),
        turn=RecordedTurn(
            units=tuple(unit.key for unit in cycle.units),
            scoring=cycle.scoring,
            replacements=replacements,
            partial=partial,
            wasted=dict(cycle.wasted),
            late=cycle.late,
        ),
    )


def _are_owners(values: Sequence[Any]) -> bool:
    return bool(values) and isinstance(values[0], OwnerObject)
