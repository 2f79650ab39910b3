"""What people are told of a job: one stage for each step, its text, and what they can do."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import Console
from tests.migration.test_steps import (
    BOUND,
    CREATED,
    DONE,
    EVICTED,
    EVICTING,
    JOB,
    JOBS,
    RUNNING,
    SCHEDULED,
    after,
)

from koord.answers.encoding import encode
from koord.answers.migration import explain_job
from koord.cli.migration_view import _draw
from koord.core.eviction.reasons import Protection
from koord.core.migration.eligibility import Ineligible
from koord.core.migration.model import JobPhase, JobStatus, JobStep, MigrationJob, MoveOrigin
from koord.core.migration.stage import MoveStage, count_places, find_stage

WAITING = replace(JOB, is_admitted=False, status=JobStatus(message="MaxMigratingPerNode: 2 of 2"))
CONFLICT = replace(WAITING, status=JobStatus().with_step(JobStep.CONFLICT, "Disabled"))
FAILED = after(EVICTING, now=1300.0)


@pytest.mark.parametrize(
    ("job", "stage", "text"),
    [
        (WAITING, MoveStage.ARBITRATION, "waits for its turn: MaxMigratingPerNode: 2 of 2."),
        (CONFLICT, MoveStage.NOT_CARRIED_OUT, "Nobody carries it out"),
        (RUNNING, MoveStage.PLACE, "A place for ml/web-2 is looked for"),
        (CREATED, MoveStage.PLACE, "it runs on n1 until there is one"),
        (replace(SCHEDULED, group="g", group_size=3), MoveStage.GROUP, "1 of the 3 jobs"),
        (EVICTING, MoveStage.EVICTION, "its place on n5 is kept"),
        (EVICTED, MoveStage.REPLACEMENT, "ml/web-2 has gone from n1"),
        (BOUND, MoveStage.READINESS, "ml/web-9 has taken the place on n5"),
        (DONE, MoveStage.MOVED, "ml/web-2 was moved from n1 to n5: ml/web-9 has replaced it"),
        (FAILED, MoveStage.FAILED, "It has failed (Timeout)"),
        (replace(RUNNING, is_paused=True), MoveStage.PAUSED, "It is paused"),
        (replace(EVICTED, is_paused=True), MoveStage.REPLACEMENT, "has gone"),
        (replace(JOB, problem="no pod"), MoveStage.FAILED, "(Invalid): no pod."),
    ],
)
def test_each_stage_is_told(job: MigrationJob, stage: MoveStage, text: str) -> None:
    job = replace(job, origin=MoveOrigin("n1", "web"))
    answer = explain_job(job, [job], None, None, 1010.0)
    assert (find_stage(job), answer.stage) == (stage, stage)
    assert text in answer.message
    assert stage.is_well is (stage not in {MoveStage.FAILED, MoveStage.NOT_CARRIED_OUT})
    console = Console(width=200, record=True)
    for part in _draw(answer):
        console.print(part)
    assert text in console.export_text()


def test_time_that_is_left_the_group_and_what_would_refuse_the_job() -> None:
    others = [replace(WAITING, name=name, group="g", group_size=2) for name in ("b", "a")]
    rule = Ineligible(8, "LocalStorage", "it would lose an emptyDir or hostPath volume")
    answer = encode(explain_job(others[0], others, None, rule, 1100.0))
    assert answer["group"] == ["a", "b"]
    assert answer["left"] == "3m"
    assert answer["obstacle"].startswith("rule 8 (LocalStorage)")
    bare = explain_job(WAITING, [], None, Protection.OWNERLESS, 1100.0)
    assert "without a controller" in bare.obstacle
    assert explain_job(DONE, [], None, rule, 1100.0).obstacle == ""
    assert count_places([WAITING, SCHEDULED, EVICTING]) == 2


@pytest.mark.parametrize("job", JOBS)
def test_a_job_is_over_in_exactly_the_stages_of_an_end(job: MigrationJob) -> None:
    ends = {MoveStage.MOVED, MoveStage.FAILED}
    assert (find_stage(job) in ends) is job.status.phase.is_over
    failed = replace(job, status=replace(job.status, phase=JobPhase.FAILED))
    assert find_stage(failed) is MoveStage.FAILED
