"""What nodes lack for one more pod once they have taken all that they can.

Where a gang does not fit, many nodes may take some of it. What they lack is what they lack then;
what they offered says the rest. So Koordinator counts, too.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from koord.core.framework.cycle import Cycle
from koord.core.framework.reasons import InsufficientNodes
from koord.core.framework.shortage import explain_shortage
from koord.core.pods import Pod
from koord.core.topology.rank import rank_member


def count_outspent(snapshot: Cycle, pods: Sequence[Pod], want: int, fit: int) -> InsufficientNodes:
    """Say what nodes lack for one more of ``pods`` (equal, or of the first kind) than they take.

    Nodes that take ``want`` or more lack nothing. ``fit`` members have a place at best; the one
    after them is the first that has none.
    """
    ordered = sorted(pods, key=lambda pod: rank_member(pod.index, pod.name, pod.uid))
    first = ordered[min(fit, len(ordered) - 1)]
    shape = snapshot.shape_of(first)
    room = np.minimum(snapshot.capacity(shape), want)
    mark = snapshot.checkpoint()
    snapshot.fill_amounts(shape, room)
    reason = explain_shortage(snapshot, want, fit, first)
    snapshot.rollback(mark)
    return replace(reason, more_nodes=0)
