"""Makes objects as a tenant could write them who means no good: for the running process.

Most are taken by the API server: names, labels and quantities have the form that it checks. What it
does not check is anything: annotations, owners, selectors, ports, how objects refer to each other.
"""

import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from tests.fuzz.mutate import TEXTS, Mutator
from tests.fuzz.samples import GANG_ANNOTATIONS, POD_ANNOTATIONS

from koord.api import keys
from koord.api.keys import device, gang, operators, preemption, quota, reservation

Body = dict[str, Any]
SCHEDULING = "scheduling.sigs.k8s.io/v1alpha1"
KOORDINATOR = "scheduling.koordinator.sh/v1alpha1"

KINDS = {
    "Pod": ("v1", "pods", True),
    "PodGroup": (SCHEDULING, "podgroups", True),
    "ElasticQuota": (SCHEDULING, "elasticquotas", True),
    "ElasticQuotaProfile": ("quota.koordinator.sh/v1alpha1", "elasticquotaprofiles", True),
    "Reservation": (KOORDINATOR, "reservations", False),
    "Device": (KOORDINATOR, "devices", False),
}
"""Kind -> API version, plural, and whether it is in a namespace."""
WEIGHTS = {"Pod": 60, "PodGroup": 14, "ElasticQuota": 8, "ElasticQuotaProfile": 3}
WEIGHTS |= {"Reservation": 10, "Device": 5}

BOMBS = (
    "[" * 20_000,
    '{"a":' * 5_000 + "1" + "}" * 5_000,
    '{"groups":' + "[" * 10_000 + "]" * 10_000 + "}",
    "9" * 20_000,
    '{"gpu": NaN, "minMember": Infinity}',
    '{"groups":[],"groups":[{"name":"a"}],"name":1,"name":"x"}',
    "[null,null]",
    '["\\ud800"]',
    '{"name":"\\udc00"}',
    '["\\u0000"]',
    "\x1b[2J\x1b]0;owned\x07\u202e\u2066\x9b31m\r\nlevel=error msg=forged",
    json.dumps({"groups": [{"name": f"g{i}", "minMember": 1} for i in range(300)]}),
    json.dumps(
        {"gatherStrategy": [{"layer": f"l{i}", "strategy": "MustGather"} for i in range(200)]}
    ),
    json.dumps([f"x/{'a' * 60}{i}" for i in range(300)]),
    '[{"core": 1e300, "memory": "1e300Ti"}]',
    '{"preferredCPUBindPolicy":"FullPCPUs","cpuset":"0-99999999999"}',
)
QUANTITIES = ("0", "1", "2", "8", "150", "1n", "1m", "1500m", "40Gi", "1e3", "9Ei", "999999999999")
RESOURCES = (
    "cpu",
    "memory",
    "nvidia.com/gpu",
    "koordinator.sh/gpu-core",
    "koordinator.sh/gpu-memory",
    "koordinator.sh/gpu-memory-ratio",
    "koordinator.sh/gpu.shared",
    "koordinator.sh/rdma",
    "huawei.com/npu-core",
    "evil.com/x",
)
WHOLE = frozenset(name for name in RESOURCES if "/" in name)
"""Resources of which the API server takes whole amounts only."""


_KEY = re.compile(r"[a-z0-9.-]+/[A-Za-z0-9]([\w.-]*[A-Za-z0-9])?")


@cache
def known_keys() -> tuple[str, ...]:
    """Return all keys that anything reads, and those of samples."""
    modules = (keys, device, gang, operators, preemption, quota, reservation)
    found = {
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, str) and _KEY.fullmatch(value)
    }
    return tuple(sorted(found | POD_ANNOTATIONS.keys()))


@dataclass(frozen=True, slots=True)
class Made:
    """One object to create, and where."""

    kind: str
    path: str
    body: Body

    @property
    def name(self) -> str:
        return str(self.body["metadata"]["name"])


class ObjectMaker:
    """Makes objects, repeatably; pods select the nodes with the label ``test``."""

    def __init__(self, seed: int, namespace: str, nodes: tuple[str, ...]) -> None:
        self._rng = random.Random(seed)  # noqa: S311 - to be repeated, not to be secret
        self._mutator = Mutator(self._rng)
        self._namespace, self._nodes = namespace, nodes
        self._free_nodes = list(nodes)

    def make(self, count: int) -> Iterator[Made]:
        kinds = self._rng.choices([*WEIGHTS], [*WEIGHTS.values()], k=count)
        for at, kind in enumerate(kinds):
            version, plural, is_in_namespace = KINDS[kind]
            body = getattr(self, f"_make_{kind.lower()}")()
            name = body["metadata"].get("name") or f"{kind.lower()}-{at}"
            within = f"/namespaces/{self._namespace}" if is_in_namespace else ""
            if not is_in_namespace and kind != "Device":
                name = f"{self._namespace}-{name}"
            body |= {"apiVersion": version, "kind": kind}
            body["metadata"]["name"] = name
            root = "/api" if version == "v1" else "/apis"
            yield Made(kind, f"{root}/{version}{within}/{plural}", body)

    # --- parts -----------------------------------------------------------------------------------

    def _pick(self, *values: Any) -> Any:
        return self._rng.choice(values)

    def _is(self, share: float) -> bool:
        return self._rng.random() < share

    def _gang(self) -> str:
        return f"podgroup-{self._rng.randrange(60)}"

    def _text(self, key: str) -> str:
        """Return the value of an annotation: a valid one, a mutant of one, or anything."""
        sample = (POD_ANNOTATIONS | GANG_ANNOTATIONS).get(key)
        if sample is not None and self._is(0.6):
            if self._is(0.4):
                return sample
            changed = self._mutator._change(sample)
            return changed if isinstance(changed, str) else json.dumps(changed)
        return str(self._pick(*BOMBS, *TEXTS))

    def _annotations(self) -> dict[str, str]:
        chosen = self._rng.sample(known_keys(), self._pick(0, 1, 1, 2, 4))
        texts = {key: self._text(key)[:30_000] for key in chosen}
        return {key: text.encode("utf-8", "replace").decode() for key, text in texts.items()}

    def _owners(self) -> list[Body]:
        kind = self._pick("DaemonSet", "Job", "Node", "ReplicaSet", "Nothing")
        return [
            {
                "apiVersion": self._pick("apps/v1", "batch/v1", "example.com/v1"),
                "kind": kind,
                "name": "made-up",
                "uid": f"{self._rng.randrange(1 << 32):08x}-0000-0000-0000-000000000000",
                "controller": self._is(0.8),
            }
        ]

    def _amounts(self) -> dict[str, str]:
        chosen = self._rng.sample(RESOURCES, self._pick(0, 1, 1, 2, 3))
        made = {name: self._pick(*QUANTITIES) for name in chosen}
        return {
            name: "2" if name in WHOLE and one[-1] in "nm" else one for name, one in made.items()
        }

    def _selector(self) -> Body:
        return self._pick(
            {},
            {"matchLabels": {"app": self._pick("a", "b")}},
            {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
            {"matchExpressions": [{"key": "app", "operator": "In", "values": ["a"] * 50}]},
        )

    def _terms(self) -> list[Body]:
        keys = ("kubernetes.io/hostname", "zone", "no-such-label")
        count = self._pick(1, 2, 20)
        return [{"labelSelector": self._selector(), "topologyKey": self._pick(*keys)}] * count

    def _containers(self) -> list[Body]:
        container: Body = {"name": "c", "image": "x", "resources": {"limits": self._amounts()}}
        if self._is(0.15):
            first, count = self._rng.randrange(1, 60_000), self._pick(1, 3, 100)
            container["ports"] = [
                {
                    "containerPort": first + at,
                    "hostPort": first + at,
                    "protocol": self._pick("TCP", "UDP"),
                }
                for at in range(count)
            ]
            for port in container["ports"]:
                port["protocol"] = "TCP"
        return [container, *([{**container, "name": "d", "ports": []}] if self._is(0.2) else ())]

    # --- kinds -----------------------------------------------------------------------------------

    def _make_pod(self) -> Body:
        labels = {"app": self._pick("a", "b"), **self._labels()}
        if self._is(0.5):
            labels["pod-group.scheduling.sigs.k8s.io"] = self._gang()
        spec: Body = {
            "schedulerName": self._pick(*["koord-scheduler"] * 8, "nobody", "default-scheduler"),
            "nodeSelector": {"test": self._namespace},
            "terminationGracePeriodSeconds": self._pick(0, 0, 30, 10**6),
            "containers": self._containers(),
        }
        gates = [operators.PLACEMENT_GATE] if self._is(0.5) else []
        gates += ["example.com/other"] if self._is(0.05) else []
        if gates:
            spec["schedulingGates"] = [{"name": gate} for gate in gates]
        if self._is(0.2):
            required = "requiredDuringSchedulingIgnoredDuringExecution"
            spec["affinity"] = {
                self._pick("podAffinity", "podAntiAffinity"): {required: self._terms()}
            }
        if self._is(0.1):
            spec["topologySpreadConstraints"] = [
                {
                    "maxSkew": self._pick(1, 5),
                    "topologyKey": self._pick("zone", "kubernetes.io/hostname"),
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": self._selector(),
                }
            ]
        if self._is(0.05):
            spec["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "missing"}}]
        if self._is(0.1):
            spec["tolerations"] = [{"operator": "Exists"}]
        meta: Body = {"labels": labels, "annotations": self._annotations()}
        if self._is(0.2):
            meta["ownerReferences"] = self._owners()
        return {"metadata": meta, "spec": spec}

    def _labels(self) -> dict[str, str]:
        return {
            **({quota.NAME: self._pick("elasticquota-1", "none")} if self._is(0.2) else {}),
            **({quota.PREEMPTIBLE: self._pick("false", "x")} if self._is(0.1) else {}),
            **(
                {"koordinator.sh/qosClass": self._pick("LSR", "LSE", "BE")} if self._is(0.2) else {}
            ),
        }

    def _make_podgroup(self) -> Body:
        return {
            "metadata": {"name": None, "annotations": self._annotations()},
            "spec": {
                "minMember": self._pick(1, 1, 2, 3, 10, 10**5),
                "scheduleTimeoutSeconds": self._pick(1, 60, 2**31 - 1),
            },
        }

    def _make_elasticquota(self) -> Body:
        most = self._amounts()
        labels = {
            quota.PARENT: self._pick("elasticquota-1", "missing", "koordinator-root-quota"),
            quota.IS_PARENT: self._pick("true", "false", "x"),
            quota.TREE_ID: self._pick("t1", f"t{self._rng.randrange(9)}"),
        }
        chosen = self._rng.sample([*labels], self._pick(0, 1, 2))
        return {
            "metadata": {
                "labels": {key: labels[key] for key in chosen} | {quota.TREE_ID: "fuzz"},
                "annotations": self._annotations(),
            },
            "spec": {"max": most, "min": self._pick({}, most, self._amounts())},
        }

    def _make_elasticquotaprofile(self) -> Body:
        return {
            "metadata": {"annotations": self._annotations()},
            "spec": {
                "quotaName": self._pick("p1", "p2", "elasticquota-1"),
                "quotaLabels": {quota.TREE_ID: "fuzz-profile"},
                "nodeSelector": {"matchLabels": {"test": self._namespace}},
            },
        }

    def _make_reservation(self) -> Body:
        owners = [
            {"labelSelector": self._selector()},
            {"object": {"namespace": self._namespace, "name": "pod-1"}},
            {"controller": {"kind": "Job", "name": "x", "namespace": self._namespace}},
        ]
        return {
            "metadata": {"annotations": self._annotations(), "labels": self._labels()},
            "spec": {
                "allocateOnce": self._is(0.5),
                "ttl": self._pick("1h", "0s", "1s", "1000000h"),
                "owners": self._rng.sample(owners, self._pick(1, 1, 2)),
                "template": {
                    "metadata": {"namespace": self._namespace, "annotations": self._annotations()},
                    "spec": {
                        "nodeSelector": {"test": self._namespace},
                        "containers": self._containers(),
                    },
                },
            },
        }

    def _make_device(self) -> Body:
        made = [
            {
                "type": self._pick("gpu", "rdma", "xpu"),
                "minor": at,
                "health": self._is(0.7),
                "id": f"id-{self._rng.randrange(20)}",
                "resources": self._amounts(),
                "topology": {"socketID": self._pick(-1, 0), "nodeID": 0, "pcieID": "0"},
            }
            for at in range(self._pick(0, 1, 8, 40))
        ]
        name = self._free_nodes.pop() if self._free_nodes else None
        name = name or f"{self._namespace}-gone-{self._rng.randrange(1 << 30)}"
        return {
            "metadata": {"name": name, "annotations": self._annotations()},
            "spec": {"devices": made},
        }
