"""Random clusters and pods for the comparison with kube-scheduler: API objects, no rules.

Every draw comes from one seeded generator, so that a difference can be made again. Chances are such
that rules meet: few labels, few values, small domains.
"""

import random
from dataclasses import dataclass
from typing import Any, Final

Object = dict[str, Any]

NODES: Final = 12
RESIDENTS: Final = 45
SPACES: Final = ("one", "two")
SCHEDULER: Final = "parity"
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
ZONE: Final = "topology.kubernetes.io/zone"
_KEYS: Final = (ZONE, "rack", "kubernetes.io/hostname")
_DOMAINS: Final = {ZONE: (3, 4), "rack": (4, 6), "kubernetes.io/hostname": (9, 13)}
"""Numbers of domains to ask for: about as many as there are."""
_SORTS: Final = ("mixed", "near", "apart", "spread", "spread", "spread", "first", "volumes")


@dataclass(frozen=True, slots=True)
class World:
    """Everything of one round, in the order in which it is to be created."""

    nodes: list[Object]
    volumes: list[Object]
    claims: list[Object]
    residents: list[Object]
    subjects: list[Object]


class Maker:
    """Draws one world; ``tag`` makes its names unique."""

    def __init__(self, seed: int, tag: str) -> None:
        self._random = random.Random(seed)  # noqa: S311 - to be repeatable is the point
        self._tag = tag

    def world(self, subjects: int) -> World:
        nodes = [self._node(at) for at in range(NODES)]
        bound = [self._volume(at) for at in range(4)]
        residents = [self._resident(at) for at in range(RESIDENTS)]
        pods = [self._subject(at) for at in range(subjects)]
        volumes, claims = [one for one, _ in bound], [one for _, one in bound]
        return World(nodes, volumes, claims, residents, pods)

    def spaces(self) -> list[Object]:
        return [
            {"metadata": {"name": self._space(name), "labels": {"team": team}}}
            for name, team in zip(SPACES, ("x", "y"), strict=True)
        ]

    def _space(self, name: str) -> str:
        return f"{self._tag}-{name}"

    def _chance(self, share: float) -> bool:
        return self._random.random() < share

    def _node(self, at: int) -> Object:
        name = f"{self._tag}-n{at}"
        labels = {"kubernetes.io/hostname": name}
        if self._chance(0.85):
            labels[ZONE] = self._random.choice("abc")
        if self._chance(0.75):
            labels["rack"] = self._random.choice("12345")
        if self._chance(0.5):
            labels["gen"] = self._random.choice(["7", "12", "1_0", "old"])
        taints = [
            {"key": "team", "value": self._random.choice("xy"), "effect": effect}
            for effect in ("NoSchedule", "PreferNoSchedule")
            if self._chance(0.2)
        ]
        amounts = {"cpu": "4", "memory": "8Gi", "pods": self._random.choice(["7", "110"])}
        ready = {"type": "Ready", "status": "True", "reason": "Parity", "message": ""}
        return {
            "metadata": {"name": name, "labels": labels},
            "spec": {"taints": taints, "unschedulable": self._chance(0.08)},
            "status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]},
        }

    def _volume(self, at: int) -> tuple[Object, Object]:
        name, space = f"{self._tag}-v{at}", self._space("one")
        labels = {ZONE: self._random.choice(["a", "a__b", "c"])} if self._chance(0.8) else {}
        spec: Object = {
            "capacity": {"storage": "1Gi"},
            "accessModes": [self._random.choice(["ReadWriteOncePod", "ReadWriteMany"])],
            "hostPath": {"path": "/nowhere"},
            "claimRef": {"namespace": space, "name": f"c{at}"},
            "storageClassName": "",
        }
        if self._chance(0.6):
            terms = [{"matchExpressions": [self._node_expression()]}]
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
        volume = {"metadata": {"name": name, "labels": labels}, "spec": spec}
        claim = {
            "metadata": {
                "name": f"c{at}",
                "namespace": space,
                "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
            },
            "spec": {
                "accessModes": spec["accessModes"],
                "resources": {"requests": {"storage": "1Gi"}},
                "volumeName": name,
                "storageClassName": "",
            },
        }
        return volume, claim

    def _resident(self, at: int) -> Object:
        space = self._space(self._random.choice((SPACES[0], *SPACES)))
        pod = self._pod(f"r{at}", space, asks=0.1, claims=0.3)
        if self._chance(0.08):
            # Existing pods repel new ones: narrowly, or no pod would fit anywhere.
            term = self._term() | {"topologyKey": self._random.choice(_KEYS[1:])}
            pod["spec"]["affinity"] = {"podAntiAffinity": {REQUIRED: [term]}}
        pod["spec"]["nodeName"] = f"{self._tag}-n{self._random.randrange(NODES)}"
        if self._chance(0.1):
            pod["metadata"]["finalizers"] = ["parity.example.com/stay"]
        return pod

    def _subject(self, at: int) -> Object:
        """Draw a pod with all kinds of constraints, or with one kind.

        The more a pod asks for, the fewer nodes are left on which one more rule could show.
        """
        sort = self._random.choice(_SORTS)
        is_mixed = sort == "mixed"
        claims = {"mixed": 0.25, "volumes": 1.0}.get(sort, 0.0)
        pod = self._pod(f"p{at}", self._space("one"), asks=0.75 * is_mixed, claims=claims)
        spec = pod["spec"]
        spec["schedulerName"] = SCHEDULER
        if sort == "near":
            spec["affinity"] = {"podAffinity": {REQUIRED: self._terms()}}
        elif sort == "apart":
            spec["affinity"] = {"podAntiAffinity": {REQUIRED: self._terms()}}
        elif sort == "spread":
            spec["topologySpreadConstraints"] = self._spreads()
            if self._chance(0.5):
                spec["nodeSelector"] = {ZONE: self._random.choice("abc")}
        elif sort == "first":
            # The first of its group: its affinity selects pods like itself, and there is none.
            alone = {"app": f"alone-{at}"}
            key = self._random.choice(_KEYS)
            term = {"topologyKey": key, "labelSelector": {"matchLabels": alone}}
            pod["metadata"]["labels"] |= alone
            spec["affinity"] = {"podAffinity": {REQUIRED: [term]}}
        return pod

    def _pod(self, name: str, space: str, *, asks: float, claims: float) -> Object:
        labels = {"app": self._random.choice(["web", "db"])}
        if self._chance(0.5):
            labels["tier"] = self._random.choice("12")
        requests = {"cpu": self._random.choice(["0", "100m", "600m"])}
        container: Object = {"name": "c", "image": "i", "resources": {"requests": requests}}
        if self._chance(0.1):
            container["ports"] = [{"containerPort": 80, "hostPort": 80}]
        spec: Object = {"containers": [container], "terminationGracePeriodSeconds": 0}
        if self._chance(asks):
            spec["affinity"] = self._affinity()
        if self._chance(asks / 2):
            spec["topologySpreadConstraints"] = self._spreads()
        if self._chance(0.2):
            spec["tolerations"] = [{"key": "team", "operator": "Exists"}]
        if self._chance(0.25):
            spec["nodeSelector"] = {ZONE: self._random.choice("abc")}
        if space.endswith(SPACES[0]) and self._chance(claims):
            # The claim of the last number does not exist.
            claim = {"claimName": f"c{self._random.randrange(5)}"}
            spec["volumes"] = [{"name": "v", "persistentVolumeClaim": claim}]
        return {"metadata": {"name": name, "namespace": space, "labels": labels}, "spec": spec}

    def _node_expression(self) -> Object:
        key, operator, values = self._random.choice(
            [
                (ZONE, "In", ["a", "b"]),
                (ZONE, "NotIn", ["c"]),
                ("rack", "Exists", None),
                ("rack", "DoesNotExist", None),
                ("gen", "Gt", ["8"]),
                ("gen", "Lt", ["8"]),
            ]
        )
        found: Object = {"key": key, "operator": operator}
        return found if values is None else found | {"values": values}

    def _selector(self) -> Object | None:
        """Mostly by one label; sometimes everything, nothing, or by expressions."""
        draw = self._random.random()
        if draw < 0.06:
            return None
        if draw < 0.12:
            return {}
        if draw < 0.6:
            return {"matchLabels": {"app": self._random.choice(["web", "db"])}}
        operator = self._random.choice(["In", "NotIn", "Exists", "DoesNotExist"])
        values = [self._random.choice("12")] if operator in {"In", "NotIn"} else None
        return {"matchExpressions": [{"key": "tier", "operator": operator, "values": values}]}

    def _term(self) -> Object:
        term: Object = {"topologyKey": self._random.choice(_KEYS)}
        selector = self._selector()
        if selector is not None:
            term["labelSelector"] = selector
            if self._chance(0.2):
                term[self._random.choice(["matchLabelKeys", "mismatchLabelKeys"])] = ["tier"]
            if "tier" in str(selector):
                term.pop("matchLabelKeys", None)
                term.pop("mismatchLabelKeys", None)
        if self._chance(0.25):
            term["namespaces"] = [self._space(self._random.choice(SPACES))]
        if self._chance(0.25):
            by_team = {"matchLabels": {"team": self._random.choice("xy")}}
            term["namespaceSelector"] = self._random.choice([{}, by_team])
        return term

    def _terms(self) -> list[Object]:
        return [self._term() for _ in range(self._random.choice((1, 1, 2)))]

    def _affinity(self) -> Object:
        found: Object = {}
        if self._chance(0.25):
            terms = [{"matchExpressions": [self._node_expression()]} for _ in range(2)]
            found["nodeAffinity"] = {REQUIRED: {"nodeSelectorTerms": terms}}
        if self._chance(0.3):
            found["podAffinity"] = {REQUIRED: self._terms()}
        if self._chance(0.45):
            found["podAntiAffinity"] = {REQUIRED: self._terms()}
        if self._chance(0.2):
            weighted = {"weight": 10, "podAffinityTerm": self._term()}
            found.setdefault("podAffinity", {})[PREFERRED] = [weighted]
        return found

    def _spreads(self) -> list[Object]:
        keys = self._random.sample(_KEYS, self._random.choice((1, 2, 2)))
        return [self._spread(key) for key in keys]

    def _spread(self, key: str) -> Object:
        found: Object = {
            "maxSkew": self._random.choice((1, 1, 2, 3)),
            "topologyKey": key,
            "whenUnsatisfiable": "DoNotSchedule" if self._chance(0.85) else "ScheduleAnyway",
        }
        selector = self._selector()
        if selector is not None:
            found["labelSelector"] = selector
            if self._chance(0.4) and "tier" not in str(selector):
                found["matchLabelKeys"] = ["tier"]
        if found["whenUnsatisfiable"] == "DoNotSchedule" and self._chance(0.5):
            found["minDomains"] = self._random.randint(*_DOMAINS[key])
        for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            if self._chance(0.7):
                found[policy] = self._random.choice(["Honor", "Ignore"])
        return found
