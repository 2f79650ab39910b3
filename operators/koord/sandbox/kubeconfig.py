"""Writes kubeconfig files: self-contained, readable by their owner only.

Knows nothing of how the credentials were made.
"""

import base64
from dataclasses import dataclass
from pathlib import Path

import yaml

from koord.sandbox.certificates import Credential
from koord.sandbox.files import write_privately


@dataclass(frozen=True, slots=True)
class ClusterEntry:
    """The API server that a kubeconfig points to."""

    name: str
    server: str
    ca: bytes


def write_certificate_kubeconfig(
    path: Path, cluster: ClusterEntry, user: str, credential: Credential
) -> None:
    """Write the kubeconfig of a user with a client certificate."""
    secret = {
        "client-certificate-data": _encode(credential.certificate),
        "client-key-data": _encode(credential.key),
    }
    _write(path, cluster, user, secret)


def write_token_kubeconfig(path: Path, cluster: ClusterEntry, user: str, token: str) -> None:
    """Write the kubeconfig of a user with a bearer token."""
    _write(path, cluster, user, {"token": token})


def _write(path: Path, cluster: ClusterEntry, user: str, secret: dict[str, str]) -> None:
    context = cluster.name if user == "admin" else f"{user}@{cluster.name}"
    address = {"server": cluster.server, "certificate-authority-data": _encode(cluster.ca)}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": cluster.name, "cluster": address}],
        "users": [{"name": user, "user": secret}],
        "contexts": [{"name": context, "context": {"cluster": cluster.name, "user": user}}],
        "current-context": context,
    }
    write_privately(path, yaml.safe_dump(document, sort_keys=False).encode())


def _encode(pem: bytes) -> str:
    return base64.b64encode(pem).decode()
