"""Rewrites the documents of some files together: what one names may be defined in another."""

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from copy import deepcopy
from typing import Final

from koord.api.job_disruptions import find_disruption_problems, ignore_disruptions
from koord.api.keys import operators
from koord.api.networktopology import NODE_LAYER
from koord.api.workloads import Document, find_templates, find_values
from koord_migrate.devices import share_gpus
from koord_migrate.documents import (
    MALFORMED,
    Rewritten,
    UntranslatedKey,
    malformed,
    name_of,
    unshared,
)
from koord_migrate.gang_size import size_of
from koord_migrate.groups import POD_GROUPS, make_jobs, read_pod_group, read_volcano_job
from koord_migrate.koordinator import add_gates, add_policy
from koord_migrate.leftovers import find_leftovers
from koord_migrate.queue_settings import protect
from koord_migrate.quotas import QueueShare, add, make_quota, read_share
from koord_migrate.requested_settings import (
    UNKNOWN,
    RequestedSettings,
    Say,
    add_to_template,
    advice_of,
    layer_of,
    make_pod_group,
    read_keys,
    schedulers_of,
    take,
)
from koord_migrate.table import (
    KAI_CLASSES,
    Action,
    Peer,
    rows_of,
    rows_of_keys,
)

_QUEUES: Final = {
    "Queue.scheduling.volcano.sh",
    "Queue.scheduling.run.ai",
    "ClusterQueue.kueue.x-k8s.io",
    "Cohort.kueue.x-k8s.io",
    "ElasticQuota.scheduling.x-k8s.io",
}
_TOPOLOGIES: Final = {"Topology.kueue.x-k8s.io", "Topology.kai.scheduler"}
_LOCAL_QUEUE: Final = "LocalQueue.kueue.x-k8s.io"
_LEFT_OUT: Final = {
    _LOCAL_QUEUE: "",
    "ResourceFlavor.kueue.x-k8s.io": "a tree of a node pool, see docs/quota.md#trees-of-node-pools",
    "WorkloadPriorityClass.kueue.x-k8s.io": "a PriorityClass",
    "AdmissionCheck.kueue.x-k8s.io": "nothing here",
    "HyperNode.topology.volcano.sh": "labels on the nodes, and a ClusterNetworkTopology",
}
_OWN_QUOTA: Final = "ElasticQuota.scheduling.sigs.k8s.io"
_TEMPLATES_MISSING: Final = {"TrainJob", "LeaderWorkerSet"}


def owner_of(document: Document) -> str:
    group = str(document.get("apiVersion", "")).rpartition("/")[0]
    return f"{document.get('kind')}.{group}"


def _place(document: Document, name: str) -> tuple[str, str]:
    return (document.get("metadata") or {}).get("namespace", ""), name


class Migration:
    """Knows all documents, then rewrites one after the other."""

    def __init__(self, documents: Iterable[Document]) -> None:
        self.lost: list[UntranslatedKey] = []
        self._groups: dict[tuple[str, str], RequestedSettings] = {}
        """PodGroups, those of the files and those added."""
        self._queues: dict[tuple[str, str], str] = {}
        self._users: dict[str, list[str]] = {}
        self._shares: dict[str, QueueShare] = {}
        self._waits: dict[str, list[str]] = {}
        """Queue -> after how long nobody may overtake its jobs."""
        self._topologies: list[str] = []
        self._replace = self._table()
        self._added: set[str] = set()
        self._members: set[tuple[str, str]] = set()
        """PodGroups that pods of the files name."""
        for document in documents:
            with suppress(*MALFORMED):  # reported when it is rewritten
                for member in document["items"] if document.get("kind") == "List" else [document]:
                    self._look_at(member)

    def _look_at(self, document: Document) -> None:
        owner = owner_of(document)
        name = str((document.get("metadata") or {}).get("name", ""))
        if owner == _LOCAL_QUEUE:
            queue = str((document.get("spec") or {}).get("clusterQueue", ""))
            place = _place(document, name)
            self._queues[place] = queue
            self._users.setdefault(queue, []).append(place[0] or "default")
        elif owner in _QUEUES:
            self._shares[name] = read_share(document, lambda *_: None)
        elif owner.startswith("PodGroup."):
            settings = RequestedSettings()
            if owner.partition(".")[2] in POD_GROUPS:
                settings = read_pod_group(document, lambda *_: None)
            self._groups[_place(document, name)] = settings
        elif owner in _TOPOLOGIES:
            self._topologies.append(name)
        whole = _read_job(document, owner)
        for template in find_templates(document):
            keys = deepcopy(template.get("metadata") or {})
            settings = read_keys(keys, rows_of_keys(), lambda *_: None)
            self._members.add(_place(document, settings.gang))
            whole.fill(settings)
        if whole.wait:
            self._waits.setdefault(whole.quota, []).append(whole.wait)

    def rewrite(self, document: Document) -> list[Document]:
        """Return what takes the place of a document: itself, if it concerns no other scheduler."""
        try:
            return self._rewrite(document)
        except MALFORMED as error:
            self.lost.append(malformed(document, error))
            return [document]

    def _rewrite(self, document: Document) -> list[Document]:
        if document.get("kind") == "List":
            items = [new for item in document.get("items") or () for new in self.rewrite(item)]
            return [document if items == document.get("items") else document | {"items": items}]
        replace = self._replace.get(owner_of(document), self._rewrite_workload)
        say = self._sayer(document)
        made = replace(document, say)
        if made != [document]:
            made = [_survive_evictions(new, say) for new in made]
        for new in made:
            self.lost += (
                UntranslatedKey(name_of(new), *leftover) for leftover in find_leftovers(new)
            )
        return made

    def _table(self) -> Mapping[str, Callable[[Document, Say], list[Document]]]:
        """Return what takes the place of objects that only others know."""
        return {
            **dict.fromkeys(_LEFT_OUT, self._leave_out),
            **dict.fromkeys(_QUEUES, self._rewrite_queue),
            **dict.fromkeys(_TOPOLOGIES, self._rewrite_topology),
            **{f"PodGroup.{group}": self._rewrite_pod_group for group in POD_GROUPS},
            "Job.batch.volcano.sh": self._rewrite_volcano_job,
            _OWN_QUOTA: lambda document, say: [add_policy(document, say)],
        }

    def _sayer(self, document: Document) -> Say:
        where = name_of(document)
        return lambda key, advice: self.lost.append(UntranslatedKey(where, key, advice))

    # Groups and queues

    def _leave_out(self, document: Document, say: Say) -> list[Document]:
        advice = _LEFT_OUT[owner_of(document)]
        if advice:
            say(str(document["kind"]), f"left out; in its place: {advice}")
            return []
        rows = rows_of(owner_of(document))
        read_keys(deepcopy(document["metadata"]), rows_of_keys(), say)
        for key in document.get("spec") or {}:
            if key not in rows:
                say(f"spec.{key}", UNKNOWN)
            elif rows[key].action is Action.REPORT:
                say(f"spec.{key}", advice_of(rows[key]))
        return []

    def _rewrite_pod_group(self, document: Document, say: Say) -> list[Document]:
        settings = read_pod_group(document, say)
        self._tell_wait(settings, say)
        namespace, name = _place(document, document["metadata"]["name"])
        if settings.pod_part and (namespace, name) not in self._members:
            say("pods", f"none of {name} are in the files: they have to say {settings.pod_part}")
        return [_keep_metadata(document, make_pod_group(name, namespace, settings))]

    def _rewrite_queue(self, document: Document, say: Say) -> list[Document]:
        share = read_share(document, say)
        protect(share.settings, self._waits.get(share.name, ()))
        owner = owner_of(document)
        made = []
        if owner.startswith("ElasticQuota."):
            share.own_namespace = document["metadata"].get("namespace", "default")
        if owner.startswith("ClusterQueue."):
            self._limit_users(share, document, say)
            parent = share.parent
            if parent and parent not in self._shares and parent not in self._added:
                self._added.add(parent)
                made.append(make_quota(self._sum_children(QueueShare(parent)), is_parent=True))
        if owner.startswith("Cohort."):
            share = self._sum_children(share)
        if share.parent in {"", "root"}:
            share.parent = ""
        is_parent = any(child.parent == share.name for child in self._shares.values())
        if owner == "Queue.scheduling.volcano.sh" and share.name == "root":
            return []
        is_parent |= owner.startswith("Cohort.")
        return [*made, _keep_metadata(document, make_quota(share, is_parent=is_parent), say)]

    def _limit_users(self, share: QueueShare, document: Document, say: Say) -> None:
        spec = document.get("spec") or {}
        share.namespaces = sorted(set(self._users.get(share.name, ())))
        if not share.namespaces:
            share.namespaces = ["*"] if spec.get("namespaceSelector") == {} else []
        if not share.namespaces:
            say("LocalQueue", f"none for {share.name}: say in shared-with who may use the quota")
        if not share.parent:
            share.maximum = share.minimum | share.maximum

    def _sum_children(self, share: QueueShare) -> QueueShare:
        for child in self._shares.values():
            if child.parent == share.name:
                share.minimum = add(share.minimum, child.minimum)
        return share

    def _rewrite_topology(self, document: Document, say: Say) -> list[Document]:
        name = document["metadata"]["name"]
        labels = [level["nodeLabel"] for level in (document.get("spec") or {}).get("levels") or ()]
        layers: list[Document] = []
        for label in labels:
            layer: Document = {"topologyLayer": layer_of(label)}
            if layers:
                layer["parentTopologyLayer"] = layers[-1]["topologyLayer"]
            if layer["topologyLayer"] != NODE_LAYER:
                layer["labelKey"] = [label]
            layers.append(layer)
        if not layers or layers[-1]["topologyLayer"] != NODE_LAYER:
            above = {"parentTopologyLayer": layers[-1]["topologyLayer"]} if layers else {}
            layers.append({"topologyLayer": NODE_LAYER} | above)
        is_default = name == self._topologies[0]
        if not is_default:
            say("Topology", f"gangs use {operators.TOPOLOGY}: {name} to name it")
        made = {
            "apiVersion": "scheduling.koordinator.sh/v1alpha1",
            "kind": "ClusterNetworkTopology",
            "metadata": {"name": "default" if is_default else name},
            "spec": {"networkTopologySpec": layers},
        }
        return [_keep_metadata(document, made, say)]

    # Pods

    def _rewrite_volcano_job(self, document: Document, say: Say) -> list[Document]:
        document = unshared(document)
        settings = read_volcano_job(document, say)
        settings.fill(read_keys(document["metadata"], rows_of_keys(), say))
        self._tell_wait(settings, say)
        settings.gang = document["metadata"]["name"]
        made = self._add_pod_group(document, settings, settings.gang)
        for job in make_jobs(document, settings, say):
            for template in find_templates(job):
                keys = template.setdefault("metadata", {})
                own = read_keys(keys, rows_of_keys(), say)
                own.gang = ""
                own.fill(settings)
                share_gpus(template, own, say)
                add_to_template(template, own)
            made.append(job)
        return made

    def _rewrite_workload(self, original: Document, say: Say) -> list[Document]:
        document = unshared(original)
        templates = find_templates(document)
        metadata = document.get("metadata")
        is_outer = document not in templates and isinstance(metadata, dict)
        places: list[Document] = [metadata if is_outer and metadata else {}]
        places += (template.setdefault("metadata", {}) for template in templates)
        outer, *settings_of_pods = (read_keys(place, rows_of_keys(), say) for place in places)
        outer.fill(_take_policy(document, say))
        outer.peers |= schedulers_of(templates)
        shared = [
            share_gpus(template, settings, say)
            for template, settings in zip(templates, settings_of_pods, strict=True)
        ]
        peers = outer.peers.union(*(settings.peers for settings in settings_of_pods))
        if not (peers or any(shared)):
            return [add_gates(original)]
        if Peer.KAI in peers:
            for place, settings in zip(places, (outer, *settings_of_pods), strict=True):
                settings.fill(read_keys(place, rows_of_keys(are_common=True), say, prefixes={}))
        if document.get("kind") in _TEMPLATES_MISSING:
            say(str(document["kind"]), "see docs/recipes: its gangs cannot be named in a template")
        return self._opt_in(document, templates, settings_of_pods, outer, say)

    def _opt_in(
        self,
        document: Document,
        templates: list[Document],
        settings_of_pods: list[RequestedSettings],
        outer: RequestedSettings,
        say: Say,
    ) -> list[Document]:
        whole = RequestedSettings()
        for settings in (outer, *settings_of_pods):
            whole.fill(settings)
        if not templates and whole.pod_part:
            say("pods", f"it has no pod template: its pods have to say {whole.pod_part}")
        if Peer.KAI in whole.peers:
            classes = {
                (template.get("spec") or {}).get("priorityClassName") for template in templates
            }
            for name in sorted(KAI_CLASSES & {whole.priority, *classes}):
                say(
                    "priorityClassName", f"{name} is a class of KAI: see docs/migration-keys.md#kai"
                )
        if Peer.KUEUE in whole.peers:
            _resume(document)
        members = self._name_gang(document, templates, whole, say)
        made: list[Document] = []
        self._resolve_queue(document, whole, say)
        self._tell_wait(whole, say)
        for template, settings in zip(templates, settings_of_pods, strict=True):
            is_member = any(template is member for member in members)
            settings.gang = (settings.gang or whole.gang) if is_member else ""
            if settings.gang:
                made += self._add_pod_group(document, whole, settings.gang)
            group = self._groups.get(_place(document, settings.gang))
            if settings.gang and group is None:
                say(settings.gang, "no PodGroup of this name is in the files: migrate it, too")
            group = group or RequestedSettings()
            settings.quota, settings.priority = (
                whole.quota or group.quota,
                whole.priority or group.priority,
            )
            settings.preemptible = settings.preemptible or outer.preemptible or group.preemptible
            add_to_template(template, settings)
            if not template["metadata"]:
                del template["metadata"]
        return [*made, document]

    def _name_gang(
        self, document: Document, templates: list[Document], whole: RequestedSettings, say: Say
    ) -> list[Document]:
        """Find the gang of an object; return which of its templates are members."""
        if document.get("kind") == "CronJob":
            say(
                "CronJob",
                "its pods start one by one: for a gang create a Job and a PodGroup for each run",
            )
        if whole.gang:
            return templates
        if document.get("kind") == "JobSet" and Peer.KAI in whole.peers and whole.minimum:
            say(
                "kai.scheduler/batch-min-member",
                "all pods of the JobSet are waited for: lower `minMember` of its PodGroups",
            )
            whole.minimum = None
        with_jobs = Peer.KUEUE in whole.peers or whole.minimum is not None or whole.constraint
        size = None
        if document.get("kind") != "Pod":
            size = size_of(document, with_jobs=bool(with_jobs))
        if size is None and whole.minimum is None:
            if whole.constraint:
                say(
                    "topology",
                    "only a gang has a topology constraint: name a PodGroup, or do without",
                )
            return []
        whole.gang = str(document["metadata"].get("name", ""))
        if not whole.gang:
            say("generateName", "a gang needs a name of its own: give the object a name")
        if size is None:
            return templates  # a Deployment, say, with a minimum of its own
        whole.minimum = whole.minimum or size.minimum
        return size.members

    def _add_pod_group(
        self, document: Document, settings: RequestedSettings, name: str
    ) -> list[Document]:
        place = _place(document, name)
        if place in self._groups or settings.minimum is None:
            return []
        self._groups[place] = settings
        return [make_pod_group(place[1], place[0], settings)]

    def _tell_wait(self, settings: RequestedSettings, say: Say) -> None:
        """Say where a wait belongs of which the files do not have the queue."""
        if settings.wait and settings.quota not in self._shares:
            text = json.dumps({"protectAfter": settings.wait})
            say("sla-waiting-time", f"of a queue here: {operators.QUEUE}: {text} on its quota")

    def _resolve_queue(self, document: Document, settings: RequestedSettings, say: Say) -> None:
        if Peer.KUEUE not in settings.peers or not settings.quota:
            return
        place = _place(document, settings.quota)
        if place in self._queues:
            settings.quota = self._queues[place]
        elif settings.quota not in self._shares:
            say(
                settings.quota,
                "its LocalQueue is in none of the files: the quota must have this name",
            )


def _read_job(document: Document, owner: str) -> RequestedSettings:
    """Return what an object says beside its templates."""
    settings = read_keys(deepcopy(document.get("metadata") or {}), rows_of_keys(), lambda *_: None)
    if owner == "Job.batch.volcano.sh":
        settings.fill(read_volcano_job(document, lambda *_: None))
    elif owner.partition(".")[2] in POD_GROUPS and owner.startswith("PodGroup."):
        settings.fill(read_pod_group(document, lambda *_: None))
    return settings


def _survive_evictions(document: Document, say: Say) -> Document:
    """Let the Jobs that we place from now on make evicted pods again, or say what to change."""
    document = unshared(document)
    ignore_disruptions(document)
    for problem in find_disruption_problems(document):
        say(problem.field, problem.message)
    return document


def _keep_metadata(old: Document, new: Document, say: Say = lambda *_: None) -> Document:
    """Keep labels and annotations that belong to nobody here."""
    metadata = deepcopy(old["metadata"])
    read_keys(metadata, rows_of_keys(), say)
    for name in ("labels", "annotations"):
        keys = {**(metadata.get(name) or {}), **(new["metadata"].get(name) or {})}
        if keys:
            new["metadata"][name] = keys
    return new


def _take_policy(document: Document, say: Say) -> RequestedSettings:
    """Take the scheduling policy out of a training job."""
    settings = RequestedSettings()
    for policy in find_values(document, "spec.runPolicy.schedulingPolicy"):
        rows = rows_of("schedulingPolicy")
        for key, value in policy.items():
            if key in rows:
                take(settings, rows[key], value, say)
            else:
                say(f"schedulingPolicy.{key}", UNKNOWN)
        del document["spec"]["runPolicy"]["schedulingPolicy"]
    return settings


def _resume(document: Document) -> None:
    """Kueue starts suspended jobs; nobody else would."""
    spec = document.get("spec") or {}
    for holder in (spec, spec.get("runPolicy") or {}):
        holder.pop("suspend", None)


def migrate(documents: list[Document]) -> list[Rewritten]:
    """Rewrite the objects of other schedulers, and the pods that they name, to ours."""
    migration = Migration(documents)
    made = []
    for document in documents:
        migration.lost = []
        made.append(Rewritten(migration.rewrite(document), migration.lost))
    return made
