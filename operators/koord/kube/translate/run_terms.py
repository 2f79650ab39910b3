"""What pods and PodGroups say of their runs, as a value of the core."""

from koord.api.run_terms import NO_SETTINGS, RunSettings
from koord.core.model.run_terms import NO_TERMS, BackfillConsent, RunTerms


def make_run_terms(settings: RunSettings) -> RunTerms:
    if settings == NO_SETTINGS:
        return NO_TERMS
    return RunTerms(
        settings.max_run_time,
        settings.expected_run_time,
        settings.run_class,
        settings.user,
        BackfillConsent(settings.backfill),
    )
