"""Migration: pods that are moved to other nodes, where their places are reserved first."""

from typing import Final

from koord.api.podmigrationjob import PodMigrationJob
from koord.core.migration.plugin import Migrations
from koord.domains.planning import Planning
from koord.kube.errors import NotFound
from koord.kube.kind import of_model, of_plugin
from koord.kube.translate.migration import PodMigrationJobTranslator

POD_MIGRATION_JOBS: Final = of_model(
    PodMigrationJob,
    lambda _: PodMigrationJobTranslator(),
    of_plugin(Migrations),
    Migrations.upsert,
    Migrations.remove,
    absent_on=(NotFound,),
)
"""Plans do not depend on them, so that only operators that move pods read them."""

PLANNING: Final = Planning(make_plugins=lambda _: (Migrations(),))
