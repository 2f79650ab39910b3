"""Keeps a ``ClusterState`` in step with the API server: reflectors in, changes applied, all told.

Knows which kinds are read; what they mean is the business of the state and of those who listen.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from koord.core.gang.model import PodGroup
from koord.core.nodes import Node
from koord.core.pods import Pod
from koord.core.quota.book import key_of
from koord.core.quota.model import QuotaSpec
from koord.core.state import ClusterState
from koord.kube.client import Client
from koord.kube.reflector import Reflector
from koord.kube.sources import node_source, pod_group_source, pod_source, quota_source
from koord.kube.store import Change, Deleted
from koord.kube.translate.gangs import PodGroupTranslator
from koord.kube.translate.pods import PodTranslator
from koord.kube.translate.quotas import QuotaTranslator

log = logging.getLogger(__name__)

PODS: Final = "pods"
NODES: Final = "nodes"
POD_GROUPS: Final = "podgroups"
QUOTAS: Final = "elasticquotas"


class ClusterReader:
    """Runs the reflectors of ``kinds`` and applies what they deliver to ``state``.

    ``listeners`` are called after every batch of changes, in the same turn of the event loop.
    """

    def __init__(
        self,
        client: Client,
        pods: PodTranslator,
        pod_groups: PodGroupTranslator,
        quotas: QuotaTranslator,
        kinds: Sequence[str],
    ) -> None:
        self.state = ClusterState()
        self.listeners: list[Callable[[], None]] = []
        self._client = client
        self._pods = pods
        self._pod_groups = pod_groups
        self._quotas = quotas
        self.reflectors: Mapping[str, Reflector[Any, Any]] = {
            kind: self._make_reflector(kind) for kind in kinds
        }

    def unsynced(self) -> list[str]:
        """Name the kinds of which the copy is not complete or not followed."""
        return [kind for kind, one in self.reflectors.items() if not one.synced.is_set()]

    async def wait_synced(self) -> None:
        """Return once every kind has been listed completely."""
        for reflector in self.reflectors.values():
            await reflector.synced.wait()

    async def run(self) -> None:
        """Follow the cluster until cancelled."""
        async with asyncio.TaskGroup() as group:
            for kind, reflector in self.reflectors.items():
                group.create_task(reflector.run(), name=f"reflect {kind}")

    def _make_reflector(self, kind: str) -> Reflector[Any, Any]:
        reject = self._rejecter(kind)
        if kind == PODS:
            source = pod_source(self._pods, reject)
            return Reflector(self._client, source, self._take_pods)
        if kind == NODES:
            return Reflector(self._client, node_source(reject), self._take_nodes)
        if kind == QUOTAS:
            return Reflector(self._client, quota_source(self._quotas, reject), self._take_quotas)
        groups = pod_group_source(self._pod_groups, reject)
        return Reflector(self._client, groups, self._take_pod_groups)

    def _rejecter(self, kind: str) -> Callable[[str, str], None]:
        def reject(key: str, problem: str) -> None:
            log.warning(
                "an object cannot be understood and is left as last known",
                extra={"kind": kind, "object": key, "problem": problem},
            )

        return reject

    def _take_pods(self, changes: list[Change[Pod]]) -> None:
        for change in changes:
            if isinstance(change, Deleted):
                self.state.remove_pod(change.value.uid)
            else:
                self.state.upsert_pod(change.value)
        self._tell()

    def _take_nodes(self, changes: list[Change[Node]]) -> None:
        for change in changes:
            if isinstance(change, Deleted):
                self.state.remove_node(change.value.name)
            else:
                self.state.upsert_node(change.value)
        self._tell()

    def _take_pod_groups(self, changes: list[Change[PodGroup]]) -> None:
        for change in changes:
            if isinstance(change, Deleted):
                self.state.remove_pod_group(change.value.key)
            else:
                self.state.upsert_pod_group(change.value)
        self._tell()

    def _take_quotas(self, changes: list[Change[QuotaSpec]]) -> None:
        for change in changes:
            if isinstance(change, Deleted):
                self.state.remove_quota(key_of(change.value))
            else:
                self.state.upsert_quota(change.value)
        self._tell()

    def _tell(self) -> None:
        if not self.state.is_followed:
            self.state.publish()
        for listener in self.listeners:
            listener()
