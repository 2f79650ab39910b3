"""The running operators meet hundreds of objects that a tenant has made up.

More of them, on a sandbox of their own: ``python -m tests.fuzz.process --objects 100000``.
"""

from tests.fuzz.process import Round
from tests.operators.conftest import Cluster

OBJECTS = 500


def test_every_object_gets_a_status_or_a_reason_and_the_leader_stays(cluster: Cluster) -> None:
    fuzzed = Round(cluster, seed=0)
    try:
        fuzzed.play(OBJECTS)
        assert len(fuzzed.created) > OBJECTS / 2, fuzzed.refused.most_common(10)
    finally:
        fuzzed.clear()
