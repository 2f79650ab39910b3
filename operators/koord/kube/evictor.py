"""Takes pods away: says why in their status, then deletes them, each by its uid.

As kube-scheduler does with victims: the condition ``DisruptionTarget`` lets a Job tell an eviction
from a failure (https://kubernetes.io/docs/concepts/workloads/pods/disruptions/). Disruption budgets
are not asked: who is evicted, and whether it may be, is decided elsewhere.
"""

import time
from typing import Final

from koord.core.pods import Pod
from koord.kube.client import Client
from koord.kube.errors import ApiError, Conflict, Invalid, KubeError, NotFound
from koord.kube.outcomes import Done, Gone, Outcome, Refused, Unknown
from koord.kube.request import Media
from koord.kube.retry import is_transient
from koord.kube.statement import Condition, Statement, render

DISRUPTION_TARGET: Final = "DisruptionTarget"


class Evictor:
    """Evicts pods; what could not be done may be asked for again."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def evict(self, pod: Pod, reason: str, message: str) -> Outcome:
        """Delete a pod, and no other of its name; ``Gone`` if it is not there any more."""
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        try:
            await self._tell(path, pod, reason, message)
            await self._client.delete(path, uid=pod.uid)
        except (NotFound, Conflict, Invalid):
            return Gone()
        except ApiError as error:
            return Unknown(str(error)) if is_transient(error) else Refused(error.status, str(error))
        except KubeError as error:
            return Unknown(str(error))
        return Done()

    async def _tell(self, path: str, pod: Pod, reason: str, message: str) -> None:
        condition = Condition(DISRUPTION_TARGET, status=True, reason=reason, message=message)
        status = render(Statement((condition,)), {}, time.time())
        body = {"metadata": {"uid": pod.uid}, "status": status}
        await self._client.patch(f"{path}/status", body, Media.STRATEGIC_MERGE_PATCH)
