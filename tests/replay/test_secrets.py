"""What planning does not ask is not in a snapshot: nothing of it is ever decoded into a value."""

from __future__ import annotations

import json
from typing import Any

import pytest

from koord.domains.owners import OwnerKinds, make_kind
from koord.domains.placement import NODES, PODS
from koord.domains.registry import make_translator_options
from koord.domains.reservation import RESERVATIONS
from koord.kube.decode import Decoder
from koord.kube.kind import AnyKind, TranslatorOptions
from koord.kube.plan_keys import AnySignature
from koord.replay.values import ValueWriter

CANARY = "canary-of-a-secret"
FILE_SOURCE = {"secretName": CANARY, "items": [{"key": CANARY, "path": CANARY}]}
CONTAINER: dict[str, Any] = {
    "name": "main",
    "image": CANARY,
    "command": [CANARY],
    "args": [CANARY],
    "workingDir": CANARY,
    "env": [
        {"name": CANARY, "value": CANARY},
        {"name": "K", "valueFrom": {"secretKeyRef": {"name": CANARY, "key": CANARY}}},
    ],
    "envFrom": [{"secretRef": {"name": CANARY}}, {"configMapRef": {"name": CANARY}}],
    "volumeMounts": [{"name": CANARY, "mountPath": CANARY}],
    "livenessProbe": {"exec": {"command": [CANARY]}},
    "lifecycle": {"preStop": {"exec": {"command": [CANARY]}}},
    "securityContext": {"seLinuxOptions": {"user": CANARY}},
    "terminationMessagePath": CANARY,
    "resources": {"requests": {"cpu": "1"}, "limits": {"nvidia.com/gpu": "1"}},
}
ANNOTATIONS = {
    "kubectl.kubernetes.io/last-applied-configuration": json.dumps(CONTAINER),
    "example.com/token": CANARY,
}
SPEC: dict[str, Any] = {
    "schedulerName": "koord-scheduler",
    "containers": [CONTAINER],
    "initContainers": [CONTAINER],
    "ephemeralContainers": [CONTAINER],
    "serviceAccountName": CANARY,
    "imagePullSecrets": [{"name": CANARY}],
    "hostname": CANARY,
    "subdomain": CANARY,
    "hostAliases": [{"ip": "10.0.0.1", "hostnames": [CANARY]}],
    "dnsConfig": {"searches": [CANARY]},
    "securityContext": {"sysctls": [{"name": CANARY, "value": CANARY}]},
    "volumes": [
        {"name": CANARY, "secret": FILE_SOURCE},
        {"name": CANARY, "configMap": {"name": CANARY}},
        {"name": CANARY, "hostPath": {"path": CANARY}},
        {"name": CANARY, "projected": {"sources": [{"secret": FILE_SOURCE}]}},
        {"name": CANARY, "csi": {"driver": CANARY, "volumeAttributes": {CANARY: CANARY}}},
        {"name": CANARY, "rbd": {"secretRef": {"name": CANARY}, "keyring": CANARY}},
        {"name": CANARY, "iscsi": {"secretRef": {"name": CANARY}, "initiatorName": CANARY}},
    ],
}
META = {"name": "w-0", "namespace": "team-a", "uid": "u1", "annotations": ANNOTATIONS} | {
    "managedFields": [{"manager": CANARY}],
    "selfLink": CANARY,
}
STATUS = {
    "message": CANARY,
    "podIP": CANARY,
    "nominatedNodeName": CANARY,
    "containerStatuses": [
        {"name": "main", "image": CANARY, "state": {"terminated": {"message": CANARY}}}
    ],
}
NODE = {
    "metadata": {"name": "n0", "uid": "u2", "annotations": ANNOTATIONS},
    "spec": {"providerID": CANARY, "podCIDR": CANARY},
    "status": {
        "allocatable": {"cpu": "8"},
        "addresses": [{"type": "InternalIP", "address": CANARY}],
        "images": [{"names": [CANARY]}],
        "nodeInfo": {"machineID": CANARY},
        "conditions": [{"type": "Ready", "message": CANARY}],
    },
}
RESERVATION = {
    "metadata": {"name": "r", "uid": "u3", "annotations": ANNOTATIONS},
    "spec": {
        "template": {"metadata": {"annotations": ANNOTATIONS}, "spec": SPEC},
        "owners": [{"object": {"namespace": "team-a", "name": "w-0"}}],
        "ttl": "1h",
    },
}
JOB = {
    "metadata": META,
    "spec": {"parallelism": 2, "template": {"metadata": META, "spec": SPEC}},
    "status": {"active": 2, "conditions": [{"type": "Failed", "message": CANARY}]},
}


def find_owner_kind(plural: str) -> AnyKind:
    kinds = map(make_kind, OwnerKinds.choose().readable)
    return next(kind for kind in kinds if kind.plural == plural)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (PODS, {"metadata": META, "spec": SPEC, "status": STATUS}),
        (NODES, NODE),
        (RESERVATIONS, RESERVATION),
        (find_owner_kind("jobs"), JOB),
    ],
    ids=str,
)
def test_what_is_not_asked_by_planning_is_not_written(kind: AnyKind, body: dict[str, Any]) -> None:
    options = make_translator_options(TranslatorOptions(plans=AnySignature()))
    page = json.dumps({"items": [body]}).encode()
    _, (wire,) = Decoder(kind.wire).decode_page(page)
    value = kind.make_translator(options).translate(wire)
    text = json.dumps(ValueWriter().write(value))
    assert CANARY not in text
    assert '"uid": "u' in text  # it is about this object
