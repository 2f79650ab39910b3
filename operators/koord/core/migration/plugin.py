"""Keeps the jobs that move pods; plans do not depend on them."""

from collections.abc import Iterator
from typing import ClassVar

from koord.core.engine.plugin import Plugin
from koord.core.migration.model import MigrationJob
from koord.core.model.changes import ChangeLog


class Migrations(Plugin):
    """All PodMigrationJobs, by uid."""

    name: ClassVar = "migration"

    def __init__(self) -> None:
        self.jobs: dict[str, MigrationJob] = {}
        self.changes = ChangeLog()
        """Of jobs, by uid."""

    def upsert(self, job: MigrationJob) -> None:
        self.jobs[job.uid] = job
        self.changes.note(job.uid)

    def remove(self, job: MigrationJob) -> None:
        self.jobs.pop(job.uid, None)
        self.changes.note(job.uid)

    def active(self) -> Iterator[MigrationJob]:
        """Yield the jobs that have started and are not over."""
        return (job for job in self.jobs.values() if job.is_active)

    def of_group(self, job: MigrationJob) -> list[MigrationJob]:
        """Return the jobs that move together with a job, itself among them, by name."""
        if not job.group:
            return [job]
        same = (other for other in self.jobs.values() if other.group == job.group)
        return sorted(same, key=lambda other: other.name)
