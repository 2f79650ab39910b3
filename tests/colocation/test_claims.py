"""What a pod says of itself, its owner may say falsely: the offers of nodes rest on what it is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.builders import make_pod

from koord.core.colocation.decide import count_pods
from koord.core.model.koordinator_class import BATCH_CPU, KoordinatorClass
from koord.core.model.pods import PodPhase

BAND = "koordinator.sh/priority-class"


@pytest.mark.parametrize("says", ["koord-prod", "koord-mid", "nonsense"])
def test_a_pod_with_batch_resources_is_a_batch_pod(says: str) -> None:
    built = make_pod("x").labels(**{BAND: says}).requests(**{BATCH_CPU: 4000}).running("n")
    (counted,) = count_pods([built.build()], compat=False)
    assert counted.koordinator_class is KoordinatorClass.BATCH


def test_with_resources_of_its_own_beside_it_is_what_it_says() -> None:
    built = make_pod("x").labels(**{BAND: "koord-prod"}).requests(**{BATCH_CPU: 4000}, cpu=1000)
    (counted,) = count_pods([built.running("n").build()], compat=False)
    assert counted.koordinator_class is KoordinatorClass.PROD


def test_a_pod_is_accepted_once_its_kubelet_says_so() -> None:
    running = make_pod("x").requests(cpu=4000).running("n").build()
    pending = replace(running, phase=PodPhase.PENDING, started=0.0)
    for pod, is_accepted in (
        (running, True),
        (pending, False),
        (replace(pending, started=1), True),
    ):
        (counted,) = count_pods([pod], compat=False)
        assert counted.is_accepted is is_accepted
    (counted,) = count_pods([pending], compat=True)  # as Koordinator counts
    assert counted.is_accepted
