"""What is known of run times: read from pods and PodGroups, levels, bounds, ends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.builders import make_pod

from koord.api.gang import parse_pod_group_settings
from koord.api.lint import lint_documents
from koord.core.model.pods import Handling, Pod
from koord.core.model.run_terms import NO_TERMS, BackfillConsent, RunTerms
from koord.core.queue.run_time import (
    UNKNOWN,
    End,
    Estimate,
    Knowledge,
    PastRuns,
    QueueHints,
    RunTime,
    end_of,
    hints_of,
    limit_of,
    run_time_of,
    run_time_of_running,
)
from koord.core.queue.settings import QueueSettings
from koord.kube.kind import TranslatorOptions
from koord.kube.translate.pods import PodTranslator
from koord.kube.translate.queues import QueuePodReader
from koord.kube.wire import WirePod

OURS = "operators.koordinator.sh/"
NOTHING = QueueSettings()


def read_pod(annotations: dict[str, str], **spec: Any) -> tuple[Pod, PodTranslator]:
    translator = PodTranslator(TranslatorOptions(pod_readers=(QueuePodReader(),)))
    gate = {"name": f"{OURS}placement"}
    manifest = {
        "metadata": {
            "name": "p",
            "namespace": "n",
            "uid": "u",
            "annotations": {f"{OURS}{key}": value for key, value in annotations.items()},
        },
        "spec": {"schedulerName": "koord-scheduler", "schedulingGates": [gate], **spec},
    }
    wire = msgspec.json.decode(msgspec.json.encode(manifest), type=WirePod)
    return translator.translate(wire), translator


def run(name: str = "p", grace: int = 0, deadline: int | None = None, **terms: Any) -> Pod:
    hints = QueueHints(deadline=deadline, terms=RunTerms(**terms))
    return replace(make_pod(name).build(), grace=grace, extensions=(("queue", hints),))


def waiting(pod: Pod, settings: QueueSettings = NOTHING, **history: int) -> RunTime:
    estimate = Estimate(**history) if history else None
    return run_time_of(
        [(pod, NO_TERMS)],
        settings,
        lambda each, gang: limit_of(each, gang, settings),
        PastRuns(estimate),
    )


def test_annotations_of_a_pod_are_read() -> None:
    pod, translator = read_pod(
        {
            "max-run-time": "1h30m",
            "expected-run-time": "10m",
            "run-class": "nightly",
            "user": "Ada Lovelace",
            "backfill": "Evictable",
        },
        activeDeadlineSeconds=7200,
    )
    terms = RunTerms(5400, 600, "nightly", "Ada Lovelace", BackfillConsent.EVICTABLE)
    assert hints_of(pod) == QueueHints(False, 7200, terms)
    assert not translator.ignored


def test_a_pod_that_says_nothing_has_nothing() -> None:
    assert read_pod({})[0].extensions == ()


@pytest.mark.parametrize("text", ["0s", "-5m", "soon", "90", "100000h", "1h" * 200])
def test_a_run_time_that_is_none_is_told_and_changes_nothing(text: str) -> None:
    pod, translator = read_pod({"max-run-time": text})
    assert hints_of(pod).terms == NO_TERMS
    _, told = translator.ignored["u"]
    assert told.key == f"{OURS}max-run-time"
    assert text[:20] in told.problem


def test_a_pod_group_says_it_for_its_gang() -> None:
    annotations = {f"{OURS}max-run-time": "2h", f"{OURS}backfill": "Sometimes"}
    settings, bad = parse_pod_group_settings("n/g", 2, None, annotations)
    assert settings.run.max_run_time == 7200
    assert [setting.key for setting in bad] == [f"{OURS}backfill"]


def test_lint_names_each_wrong_value() -> None:
    wrong = {
        f"{OURS}max-run-time": "0s",
        f"{OURS}expected-run-time": "x",
        f"{OURS}run-class": "c" * 300,
        f"{OURS}user": "u" * 300,
        f"{OURS}backfill": "Maybe",
    }
    pod = {"kind": "Pod", "metadata": {"name": "p", "annotations": wrong}}
    job = {"kind": "Job", "spec": {"template": {"metadata": {"annotations": wrong}}}}
    for checked in lint_documents([pod, job]):
        fields = " ".join(problem.field for problem in checked.problems)
        assert len(checked.problems) == len(wrong)
        assert all(key in fields for key in wrong)


def test_what_is_known_is_expected_until_it_has_passed() -> None:
    """Then as much of the limit as other runs took that went on for so long, if that is known."""
    pod = run(deadline=1000)
    history = Estimate(200, 400)

    def expect(percent: int, ran: int) -> int | None:
        past = PastRuns(history, lambda _: percent, ran)
        return run_time_of_running([(pod, NO_TERMS)], NOTHING, past).expected

    assert [expect(70, ran) for ran in (0, 199, 200)] == [200, 200, 700]
    assert expect(100, 300) == 200


def test_one_earlier_run_says_more_than_a_limit_and_nothing_without_one() -> None:
    default = QueueSettings(default_run_time=100)
    few = {"expected": 40, "bound": 90, "is_enough": False}
    assert waiting(run(), **few) == UNKNOWN
    assert waiting(run(), default, **few) == RunTime(Knowledge.DEFAULT, 100, 150)
    declared = run(max_run_time=60)
    assert waiting(declared, default, **few) == RunTime(Knowledge.DECLARED, 40, 60 + 30, 60)
    stated = run(max_run_time=60, expected_run_time=33)
    assert waiting(stated, default, **few).expected == 33


def test_levels_best_first() -> None:
    default = QueueSettings(default_run_time=100)
    told = {"expected": 40, "bound": 90}
    assert waiting(run()) == UNKNOWN
    assert waiting(run(), default) == RunTime(Knowledge.DEFAULT, 100, 150)
    assert waiting(run(), default, **told) == RunTime(Knowledge.HISTORY, 40, 90)
    stated = run(expected_run_time=33)
    assert waiting(stated, default, **told) == RunTime(Knowledge.STATED, 33, 50)
    declared = run(grace=20, max_run_time=60, expected_run_time=33)
    assert waiting(declared, default, **told) == RunTime(Knowledge.DECLARED, 33, 60 + 20 + 30, 60)


@pytest.mark.parametrize(
    ("pod", "settings", "limit"),
    [
        (run(deadline=50, max_run_time=60), {}, 50),
        (run(deadline=70, max_run_time=60), {}, 60),
        (run(), {"max_run_time": 90}, 90),
        (run(max_run_time=60), {"max_run_time": 90}, 60),
        (run(), {"default_run_time": 40, "enforce_default": True}, 40),
        (run(), {"default_run_time": 40, "enforce_default": True, "max_run_time": 30}, 30),
        (run(), {"default_run_time": 40}, None),
    ],
)
def test_the_smallest_limit_counts(pod: Pod, settings: dict[str, Any], limit: int | None) -> None:
    assert waiting(pod, QueueSettings(**settings)).limit == limit


def test_nobody_can_enforce_what_a_pod_of_others_says() -> None:
    foreign = replace(run(max_run_time=60), handling=Handling.NOT_OURS)
    assert waiting(foreign, QueueSettings(max_run_time=50)) == UNKNOWN
    assert waiting(replace(foreign, extensions=run(deadline=60).extensions)).limit == 60


def test_a_unit_ends_with_its_last_pod() -> None:
    short, long = run("a", max_run_time=60), run("b", grace=5, max_run_time=90)
    pods = [(short, NO_TERMS), (long, NO_TERMS)]
    assert run_time_of_running(pods, NOTHING) == UNKNOWN, "annotations limit nothing that runs"
    by_kubelet = [(run("a", deadline=60), NO_TERMS), (run("b", grace=5, deadline=90), NO_TERMS)]
    assert run_time_of_running(by_kubelet, NOTHING).bound == 90 + 5 + 30
    endless = [*by_kubelet, (run("c"), NO_TERMS)]
    assert run_time_of_running(endless, NOTHING) == UNKNOWN


def test_a_bound_that_is_outrun_doubles_and_keeps_its_level() -> None:
    """Example 4b: History says 30 from the start at 0."""
    history = RunTime(Knowledge.HISTORY, 15, 30)
    assert end_of(history, 0, 29) == End(30, Knowledge.HISTORY)
    assert end_of(history, 0, 30) == End(60, Knowledge.HISTORY, is_outrun=True)
    assert end_of(history, 0, 59) == End(60, Knowledge.HISTORY, is_outrun=True)
    assert end_of(history, 0, 60) == End(120, Knowledge.HISTORY, is_outrun=True)
    assert end_of(UNKNOWN, 0, 0) is None


def test_a_kill_that_is_late_is_expected_within_a_minute() -> None:
    declared = RunTime(Knowledge.DECLARED, 60, 100, 60)
    assert end_of(declared, 1000, 1099) == End(1100, Knowledge.DECLARED)
    assert end_of(declared, 1000, 1100) == End(1160, Knowledge.DECLARED, is_outrun=True)
    assert end_of(declared, 1000, 1160) == End(1220, Knowledge.DECLARED, is_outrun=True)


@given(
    st.sampled_from(Knowledge),
    st.integers(1, 10**6),
    st.integers(0, 10**6),
    st.integers(0, 10**6),
)
def test_an_end_is_after_now_and_never_moves_back(
    level: Knowledge, bound: int, start: int, passed: int
) -> None:
    run_time = RunTime(level, bound, bound, None)
    ends = [end_of(run_time, start, start + time) for time in (passed, passed + 1)]
    assert ends[0] is not None
    assert ends[1] is not None
    assert start + passed < ends[0].at <= ends[1].at


def test_knowledge_that_counts_as_an_end() -> None:
    assert Knowledge.DECLARED.is_at_least("Declared")
    assert not Knowledge.STATED.is_at_least("Declared")
    assert Knowledge.STATED.is_at_least("History")
    assert not Knowledge.DEFAULT.is_at_least("History")
