"""Keeps a ``ClusterState`` in step with the API server: reflectors in, changes applied, all told.

Knows which kinds are read; what they mean is the business of the state and of those who listen.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from koord.core.pods import Handling, Pod
from koord.core.quota.catalog import key_of
from koord.core.state import ClusterState
from koord.kube.client import Client
from koord.kube.reflector import Reflector, Source
from koord.kube.sources import (
    claim_source,
    namespace_source,
    native_pod_group_source,
    node_source,
    pod_group_source,
    pod_source,
    profile_source,
    quota_source,
    storage_class_source,
    topology_source,
    volume_source,
)
from koord.kube.store import Change, Deleted, HasMeta
from koord.kube.translate.gangs import PodGroupTranslator
from koord.kube.translate.pods import PodTranslator
from koord.kube.translate.profiles import ProfileTranslator
from koord.kube.translate.quotas import QuotaTranslator
from koord.kube.translate.topologies import TopologyTranslator

log = logging.getLogger(__name__)

PODS: Final = "pods"
NODES: Final = "nodes"
POD_GROUPS: Final = "podgroups"
QUOTAS: Final = "elasticquotas"
PROFILES: Final = "elasticquotaprofiles"
TOPOLOGIES: Final = "clusternetworktopologies"
NAMESPACES: Final = "namespaces"
CLAIMS: Final = "persistentvolumeclaims"
VOLUMES: Final = "persistentvolumes"
STORAGE_CLASSES: Final = "storageclasses"
NATIVE_POD_GROUPS: Final = "podgroups.scheduling.k8s.io"
ALL_KINDS: Final = (
    PODS,
    NODES,
    POD_GROUPS,
    QUOTAS,
    PROFILES,
    TOPOLOGIES,
    NAMESPACES,
    CLAIMS,
    VOLUMES,
    STORAGE_CLASSES,
)
"""What there is in every cluster; those of ``NATIVE_POD_GROUPS`` are only in some."""

W = TypeVar("W", bound=HasMeta)
T = TypeVar("T")


class Translators(NamedTuple):
    """Who translates objects and remembers what stands in them."""

    pods: PodTranslator
    pod_groups: PodGroupTranslator
    quotas: QuotaTranslator
    topologies: TopologyTranslator
    profiles: ProfileTranslator


class ClusterReader:
    """Runs the reflectors of ``kinds`` and applies what they deliver to ``state``.

    ``listeners`` are called after every batch of changes, in the same turn of the event loop.
    """

    def __init__(
        self,
        client: Client,
        translators: Translators,
        kinds: Sequence[str],
        state: ClusterState,
    ) -> None:
        self.state = state
        self.listeners: list[Callable[[], None]] = []
        self.rejections: Counter[str] = Counter()
        """Reason -> pods of ours that kubelets were seen to refuse since the start."""
        self._client = client
        self._pods, self._pod_groups, self._quotas, self._topologies, self._profiles = translators
        makers = self._make_reflectors()
        self.reflectors: Mapping[str, Reflector[Any, Any]] = {
            kind: makers[kind]() for kind in kinds
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

    def _make_reflectors(self) -> dict[str, Callable[[], Reflector[Any, Any]]]:
        state, make = self.state, self._rejecter
        return {
            PODS: lambda: self._reflect(
                pod_source(self._pods, make(PODS)),
                self._upsert_pod,
                lambda pod: state.remove_pod(pod.uid),
            ),
            NODES: lambda: self._reflect(
                node_source(make(NODES)),
                state.upsert_node,
                lambda node: state.remove_node(node.name),
            ),
            POD_GROUPS: lambda: self._reflect(
                pod_group_source(self._pod_groups, make(POD_GROUPS)),
                state.upsert_pod_group,
                lambda group: state.remove_pod_group(group.key),
            ),
            QUOTAS: lambda: self._reflect(
                quota_source(self._quotas, make(QUOTAS)),
                state.upsert_quota,
                lambda quota: state.remove_quota(key_of(quota)),
            ),
            PROFILES: lambda: self._reflect(
                profile_source(self._profiles, make(PROFILES)),
                state.profiles.upsert,
                lambda profile: state.profiles.remove(profile.key),
            ),
            NATIVE_POD_GROUPS: lambda: self._reflect(
                native_pod_group_source(self._pod_groups.defaults, make(NATIVE_POD_GROUPS)),
                state.upsert_pod_group,
                lambda group: state.remove_pod_group(group.key),
            ),
            TOPOLOGIES: lambda: self._reflect(
                topology_source(self._topologies, make(TOPOLOGIES)),
                state.upsert_topology,
                lambda topology: state.remove_topology(topology.name),
            ),
            NAMESPACES: lambda: self._reflect(
                namespace_source(make(NAMESPACES)),
                lambda one: state.upsert_namespace(one.name, one.labels),
                lambda one: state.remove_namespace(one.name),
            ),
            CLAIMS: lambda: self._reflect(
                claim_source(make(CLAIMS)),
                state.upsert_claim,
                lambda claim: state.remove_claim(claim.key),
            ),
            VOLUMES: lambda: self._reflect(
                volume_source(make(VOLUMES)),
                state.upsert_volume,
                lambda volume: state.remove_volume(volume.name),
            ),
            STORAGE_CLASSES: lambda: self._reflect(
                storage_class_source(make(STORAGE_CLASSES)),
                state.upsert_storage_class,
                lambda one: state.remove_storage_class(one.name),
            ),
        }

    def _reflect(
        self, source: Source[W, T], upsert: Callable[[T], None], remove: Callable[[T], None]
    ) -> Reflector[W, T]:
        def take(changes: list[Change[T]]) -> None:
            for change in changes:
                (remove if isinstance(change, Deleted) else upsert)(change.value)
            self._tell()

        return Reflector(self._client, source, take)

    def _upsert_pod(self, pod: Pod) -> None:
        if pod.rejection and (pod.recorded is not None or pod.handling is not Handling.NOT_OURS):
            before = self.state.observed(pod.uid)
            # What had ended before we looked was another process's business.
            self.rejections[pod.rejection] += before is not None and not before.rejection
        self.state.upsert_pod(pod)

    def _rejecter(self, kind: str) -> Callable[[str, str], None]:
        def reject(key: str, problem: str) -> None:
            log.warning(
                "an object cannot be understood and is left as last known",
                extra={"kind": kind, "object": key, "problem": problem},
            )

        return reject

    def _tell(self) -> None:
        if not self.state.is_followed:
            self.state.publish()
        for listener in self.listeners:
            listener()
