"""What no node that is there takes waits for new nodes, if an autoscaler is known to add such."""

from __future__ import annotations

import pytest
from tests.autoscaler.test_demand import told
from tests.builders import make_node, make_pod
from tests.cluster import FakeCluster, make_cluster

from koord.core.autoscaler.options import AutoscalerOptions, Signal
from koord.core.model.reason_class import ReasonClass
from koord.domains.autoscaler_settings import AutoscalerSettings, read_reported

LARGE = make_node("kind-0").gpu(16).label("pool", "large").build()
KNOWN = AutoscalerOptions(Signal.MARK, kinds=(LARGE,))
OTHERS = AutoscalerOptions(Signal.MARK, kinds=(make_node("kind-0").gpu(4).build(),))


def refused(options: AutoscalerOptions) -> FakeCluster:
    cluster = make_cluster(autoscaler=options).nodes(make_node("n0").gpu(8))
    cluster.pods(make_pod("p").gpu(16).select("pool", "large"))
    cluster.step()
    return cluster


@pytest.mark.parametrize(
    ("options", "code", "reason_class", "says"),
    [
        (KNOWN, "InsufficientNodes", ReasonClass.ROOM, "An autoscaler can add a node for it. "),
        (OTHERS, "NoSuitableNode", ReasonClass.MISCONFIGURED, "No kind of nodes is known that "),
        (AutoscalerOptions(kinds=(LARGE,)), "NoSuitableNode", ReasonClass.MISCONFIGURED, "No room"),
    ],
    ids=["a kind that suits", "other kinds", "off"],
)
def test_it_waits_for_nodes_if_such_may_come(options, code, reason_class, says) -> None:
    reason = refused(options).reason()
    assert (reason.code, reason.reason_class) == (code, reason_class)
    assert reason.text().startswith(says)
    assert "No node could take it even if empty" in reason.text()


@pytest.mark.parametrize("options", [KNOWN, OTHERS])
def test_what_is_said_to_wait_for_nodes_is_what_autoscalers_are_told_of(options) -> None:
    cluster = refused(options)
    waits = cluster.reason().reason_class is ReasonClass.ROOM
    assert bool(told(cluster, options)) is waits


def test_what_a_node_could_take_is_not_told_of_new_ones() -> None:
    cluster = make_cluster(autoscaler=KNOWN).nodes(make_node("n0").gpu(8))
    cluster.pods(make_pod("runs").gpu(8).running("n0"), make_pod("p").gpu(8))
    cluster.step()
    assert cluster.reason().text().startswith("No room for default/p.")


@pytest.mark.parametrize("section", [{"signal": "none"}, {"signal": "never"}, None])
def test_settings_that_are_off_or_not_known_are_off_for_the_command_line(section) -> None:
    assert not read_reported(section).is_on


def test_kinds_of_nodes_are_reported_as_they_are() -> None:
    kinds = [
        {
            "labels": {"pool": "gpu"},
            "allocatable": {"cpu": "92", "memory": "1900Gi", "nvidia.com/gpu": 8},
            "taints": [{"key": "gpu"}],
        }
    ]
    settings = AutoscalerSettings.model_validate({"signal": "mark", "nodeKinds": kinds})
    assert read_reported(settings.as_reported) == settings.options
    assert AutoscalerSettings().as_reported is None
