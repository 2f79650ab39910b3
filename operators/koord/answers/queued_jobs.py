"""Jobs that wait suspended until the operators resume them: what they are in the planner."""

from dataclasses import dataclass

from koord.answers.reading import Target, TargetKind
from koord.core.engine.state import ClusterState
from koord.core.model.reasons import Reason
from koord.core.suspend.model import QueuedJob
from koord.core.suspend.plugin import JobAdmissions


@dataclass(frozen=True, slots=True)
class QueuedJobView:
    """A Job that waits: the gang that stands for it, or why there is none."""

    job: QueuedJob
    target: Target
    reason: Reason | None = None


def find_queued_job(state: ClusterState, namespace: str, name: str) -> QueuedJobView | None:
    """Return what a Job of this name is in the planner; None if the operators do not resume it."""
    for plugin in state.plugins:
        if not isinstance(plugin, JobAdmissions):
            continue
        for job in plugin.jobs.values():
            if (job.namespace, job.name) == (namespace, name) and plugin.is_waiting(job):
                target = Target(TargetKind.POD_GROUP, namespace, job.title)
                return QueuedJobView(job, target, plugin.reason_for(job))
    return None
