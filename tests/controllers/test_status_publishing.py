"""The conditions that operators write on PodGroups."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.builders import make_pod, make_pod_group

from koord.answers.queue_view import QueuePlace
from koord.api.keys import slo
from koord.api.misspelled_keys import MisspelledKey
from koord.api.pod_qos import find_bad_agent_key
from koord.controllers.placement_reports import Attempts
from koord.controllers.status_publishing import IgnoredKeys, PlacementAnnouncer
from koord.core.model.reasons import BindFailed, Reason
from koord.core.quota.reasons import InsufficientMax, SubmissionExceeded
from koord.core.topology.reasons import MissingTopology


class Sink:
    """Keeps the last statement."""

    def submit(self, _: object, statement: Any) -> None:
        self.said = {one.type: (one.status, one.reason) for one in statement.conditions}


@pytest.mark.parametrize(
    ("reason", "beside"),
    [
        (MissingTopology("default", exists=False), {}),
        (BindFailed("default/a-0", 403, "no"), {"Bound": (False, "BindFailed")}),
        (
            InsufficientMax(("team",), (), (), (), ()),
            {"QuotaReserved": (False, "QuotaExceeded")},
        ),
        (SubmissionExceeded("team", ()), {"QuotaReserved": (False, "QuotaExceeded")}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_reason_is_written_to_every_condition_it_concerns(
    reason: Reason, beside: dict[str, tuple[bool, str]]
) -> None:
    sink: Any = Sink()
    announcer = PlacementAnnouncer(sink, sink, sink, events=sink)
    announcer.announce_gang(make_pod_group("default/a").build(), reason, Attempts())
    assert sink.said == {"Placed": (False, str(reason.code)), **beside}


def test_the_place_in_the_queue_is_part_of_the_status() -> None:
    written: dict[str, object] = {}
    sink: Any = SimpleNamespace(submit=lambda _, patch: written.update(patch.fields))
    announcer = PlacementAnnouncer(sink, sink, sink, events=sink)
    attempts = Attempts(1, place=QueuePlace(3, 16))
    reason = MissingTopology("default", exists=False)
    announcer.announce_gang(make_pod_group("default/a").build(), reason, attempts)
    assert (written["queuePosition"], written["gpusAhead"]) == (3, 16)


def test_ignored_keys_have_few_events_per_namespace() -> None:
    told: list[tuple[str, str, str]] = []
    recorder: Any = SimpleNamespace(
        record=lambda ref, *_, **said: told.append((ref.name, said["reason"], said["note"]))
    )
    ignored = {
        pod.uid: (pod, MisspelledKey("gang.scheduling.koordinator.sh/nmae", "is unknown"))
        for pod in (make_pod(f"p{at}").build() for at in range(8))
    }
    reporter = IgnoredKeys(ignored, recorder)
    reporter.report()
    assert not ignored
    assert told[0] == ("p0", "KeyIgnored", "the key gang.scheduling.koordinator.sh/nmae is unknown")
    assert len(told) == 5
    assert told[-1][2].endswith("is unknown; 3 more pods of the namespace have such keys")


@pytest.mark.parametrize("number", [1, 2, 7])
def test_bad_settings_for_agents_have_an_event_of_their_own_once(number: int) -> None:
    told: list[tuple[str, str]] = []
    recorder: Any = SimpleNamespace(
        record=lambda *_, **said: told.append((said["reason"], said["note"]))
    )
    key = find_bad_agent_key({}, {slo.CPU_QOS: '{"groupIdentity":7}'})
    assert key is not None
    bad = {pod.uid: (pod, key) for pod in (make_pod(f"p{at}").build() for at in range(number))}
    ignored = dict(bad)
    reporter = IgnoredKeys(ignored, recorder)
    for _ in range(3):
        reporter.report()
        ignored |= bad
    assert len(told) == min(number, 5)
    reason, note = told[0]
    assert reason == "QosSettingInvalid"
    assert note.startswith(
        "the key koordinator.sh/cpuQOS is invalid: "
        "metadata.annotations[koordinator.sh/cpuQOS].groupIdentity: 7: "
    )
    assert note.endswith("; the pod is placed all the same, and an agent may ignore the key")
