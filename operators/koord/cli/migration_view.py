"""Reads a PodMigrationJob and prints what it waits for: ``koord explain podmigrationjob``."""

import asyncio
import time
from collections.abc import Iterator
from typing import Final

import msgspec
import typer
from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from koord.answers.encoding import encode
from koord.answers.gaps import head_of
from koord.answers.migration import MoveAnswer, explain_job
from koord.answers.reading import Reading, Target, TargetKind
from koord.api.podmigrationjob import PodMigrationJob
from koord.cli.cluster import read_cluster, refuse_gaps
from koord.cli.common import ExitCode, Output, fail
from koord.cli.connection import open_client
from koord.cli.output import print_in
from koord.controllers.migration_places import MigrationPlaces
from koord.core.eviction.mobility import Mobility
from koord.core.migration.model import MigrationJob
from koord.core.migration.plugin import Migrations
from koord.core.model.text import suggest
from koord.domains.placement import PODS
from koord.kube.errors import KubeError, NotFound
from koord.kube.translate.migration import PodMigrationJobTranslator
from koord.kube.wire import ObjectList, WireCustomResource

_JOBS: Final = f"/apis/{PodMigrationJob.names.api_version}/{PodMigrationJob.names.plural}"


def show_job(
    name: str, kubeconfig: str, context: str, *, output: Output, as_exit_code: bool
) -> None:
    now = time.time()
    try:
        reading, jobs = asyncio.run(_read(kubeconfig, context))
    except KubeError as error:
        fail(str(error), ExitCode.UNREADABLE)
    refuse_gaps(reading, PODS)
    job = jobs.get(name)
    if job is None:
        fail(f"there is no PodMigrationJob {name}{suggest(name, jobs)}", ExitCode.USAGE)
    answer = _explain(reading, job, now)
    print_in(
        output,
        head_of("Migration", reading),
        document=lambda: encode(answer),
        names=lambda: (f"podmigrationjob/{name}",),
        text=lambda: _draw(answer),
    )
    if as_exit_code and not answer.stage.is_well:
        raise typer.Exit(ExitCode.NOT_WELL)


async def _read(kubeconfig: str, context: str) -> tuple[Reading, dict[str, MigrationJob]]:
    async with open_client(kubeconfig, context) as (client, access):
        reading = await read_cluster(client, Target(TargetKind.POD, access.namespace, ""))
        try:
            body = await client.list(_JOBS)
        except NotFound:
            return reading, {}  # its CRD is not installed
    translator, migrations = PodMigrationJobTranslator(), reading.state.plugin(Migrations)
    jobs = {}
    for wire in msgspec.json.decode(body, type=ObjectList[WireCustomResource]).items or ():
        job = jobs[wire.metadata.name] = translator.translate(wire)
        migrations.upsert(job)
    return reading, jobs


def _explain(reading: Reading, job: MigrationJob, now: float) -> MoveAnswer:
    places = MigrationPlaces(reading.state, reading.migration)
    pod = places.pod_of(job)
    is_alone = not job.group
    obstacle = (
        None
        if pod is None
        else Mobility(reading.state, reading.migration).find_obstacle(pod, is_alone=is_alone)
    )
    return explain_job(job, places.group_of(job), pod, obstacle, now)


def _draw(answer: MoveAnswer) -> Iterator[RenderableType]:
    yield Text.assemble((answer.job, "bold"), f" ({answer.phase})")
    lines = [answer.message]
    lines += [f"It would be refused: {answer.obstacle}."] if answer.obstacle else []
    lines += [f"Together with: {', '.join(answer.group)}."] if answer.group else []
    lines += [f"It fails in {answer.left} otherwise."] if answer.left else []
    for line in lines:
        yield Padding(Text(line), (0, 0, 0, 2))
    for advice in answer.advice:
        yield Padding(Text(f"To do: {advice}."), (0, 0, 0, 2))
