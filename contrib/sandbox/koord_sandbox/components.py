"""The components of a sandbox and their command lines. Pure.

Each unusual argument has its reason next to it; all others keep their defaults, so that the sandbox
behaves like any cluster of that version.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

PACKAGE = Path(__file__).parent


class Component(StrEnum):
    """A process of the control plane, by the name of its binary. They are killed in this order."""

    APISERVER = "kube-apiserver"
    ETCD = "etcd"
    KWOK = "kwok"
    CONTROLLER_MANAGER = "kube-controller-manager"
    SCHEDULER = "kube-scheduler"


ALWAYS = frozenset({Component.ETCD, Component.APISERVER})
"""Every sandbox has these."""

FRONT_PROXY = "front-proxy-client"
"""As which the API server asks the servers of the aggregation layer."""

_LEASE_DURATION = 200
"""In seconds. kwok renews four times as often. A kubelet's 40 s would cost 500 writes a second, a
whole processor, for 5,000 nodes that cannot fail."""

CONTROLLERS = (
    "clusterrole-aggregation-controller",
    "cronjob-controller",
    "daemonset-controller",
    "deployment-controller",
    "disruption-controller",
    "garbage-collector-controller",
    "job-controller",
    "namespace-controller",
    "node-lifecycle-controller",
    "persistentvolume-binder-controller",
    "pod-garbage-collector-controller",
    "replicaset-controller",
    "resourcequota-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
    "statefulset-controller",
    "taint-eviction-controller",
    "ttl-after-finished-controller",
    "validatingadmissionpolicy-status-controller",
)
"""Those that workloads and scheduling need; the others would only cost processor time."""


@dataclass(frozen=True, slots=True)
class SandboxLayout:
    """Paths and ports of one sandbox."""

    directory: Path
    server_port: int
    etcd_port: int
    etcd_peer_port: int

    @property
    def server(self) -> str:
        return f"https://127.0.0.1:{self.server_port}"

    @property
    def audit_log(self) -> Path:
        return self.directory / "audit.log"

    @property
    def admin_kubeconfig(self) -> Path:
        return self.kubeconfig("admin")

    def kubeconfig(self, user: str) -> Path:
        return self.directory / f"{user}.kubeconfig"

    def pki(self, file: str) -> str:
        return str(self.directory / "pki" / file)


def make_command(
    component: Component,
    binary: Path,
    layout: SandboxLayout,
    running: Iterable[Component],
) -> list[str]:
    match component:
        case Component.ETCD:
            arguments = _etcd_arguments(layout)
        case Component.APISERVER:
            arguments = _apiserver_arguments(layout, frozenset(running))
        case Component.CONTROLLER_MANAGER:
            arguments = _controller_manager_arguments(layout)
        case Component.SCHEDULER:
            arguments = _scheduler_arguments(layout)
        case Component.KWOK:
            arguments = _kwok_arguments(layout, frozenset(running))
    return [str(binary), *_format(arguments)]


def _format(arguments: Mapping[str, object]) -> Sequence[str]:
    return [f"--{name}={value}" for name, value in arguments.items()]


def _etcd_arguments(layout: SandboxLayout) -> dict[str, object]:
    client = f"https://127.0.0.1:{layout.etcd_port}"
    peer = f"https://127.0.0.1:{layout.etcd_peer_port}"
    return {
        "name": "sandbox",
        "data-dir": layout.directory / "etcd",
        "listen-client-urls": client,
        "advertise-client-urls": client,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": f"sandbox={peer}",
        "client-cert-auth": "true",
        "trusted-ca-file": layout.pki("etcd-ca.crt"),
        "cert-file": layout.pki("etcd.crt"),
        "key-file": layout.pki("etcd.key"),
        "peer-client-cert-auth": "true",
        "peer-trusted-ca-file": layout.pki("etcd-ca.crt"),
        "peer-cert-file": layout.pki("etcd.crt"),
        "peer-key-file": layout.pki("etcd.key"),
        # The data does not outlive the sandbox, so no write has to wait for the disk.
        "unsafe-no-fsync": "true",
        # The default of 2 GiB is reached by some runs of a benchmark with 100,000 pods.
        "quota-backend-bytes": 8 * 1024**3,
        # The port is held for etcd until it listens; see hold_ports.
        "socket-reuse-port": "true",
        "log-level": "warn",
    }


def _apiserver_arguments(layout: SandboxLayout, running: frozenset[Component]) -> dict[str, object]:
    arguments = {
        "etcd-servers": f"https://127.0.0.1:{layout.etcd_port}",
        "etcd-cafile": layout.pki("etcd-ca.crt"),
        "etcd-certfile": layout.pki("etcd-client.crt"),
        "etcd-keyfile": layout.pki("etcd-client.key"),
        "bind-address": "127.0.0.1",
        "advertise-address": "127.0.0.1",
        "secure-port": layout.server_port,
        "permit-port-sharing": "true",  # as etcd's socket-reuse-port
        "tls-cert-file": layout.pki("server.crt"),
        "tls-private-key-file": layout.pki("server.key"),
        "client-ca-file": layout.pki("ca.crt"),
        # The aggregation layer: by this the servers behind it know that the API server asks.
        "requestheader-client-ca-file": layout.pki("front-proxy-ca.crt"),
        "requestheader-allowed-names": FRONT_PROXY,
        "requestheader-username-headers": "X-Remote-User",
        "requestheader-group-headers": "X-Remote-Group",
        "requestheader-extra-headers-prefix": "X-Remote-Extra-",
        "proxy-client-cert-file": layout.pki("front-proxy.crt"),
        "proxy-client-key-file": layout.pki("front-proxy.key"),
        "authorization-mode": "Node,RBAC",
        "service-account-issuer": "https://kubernetes.default.svc.cluster.local",
        "service-account-key-file": layout.pki("service-account.pub"),
        "service-account-signing-key-file": layout.pki("service-account.key"),
        "service-cluster-ip-range": "10.96.0.0/16",
        # A loopback address is not allowed as an endpoint of the service "kubernetes".
        "endpoint-reconciler-type": "none",
        "audit-policy-file": PACKAGE / "audit-policy.yaml",
        "audit-log-path": layout.audit_log,
        # The line is written before the answer is sent: a count after a call is exact.
        "audit-log-mode": "blocking",
        # No rotation: a count needs the whole file.
        "audit-log-maxsize": 0,
    }
    if Component.CONTROLLER_MANAGER not in running:
        # Both need a controller: to create the service account of each namespace, and to remove
        # the taint of new nodes.
        arguments["disable-admission-plugins"] = "ServiceAccount,TaintNodesByCondition"
    return arguments


def _controller_manager_arguments(layout: SandboxLayout) -> dict[str, object]:
    return {
        "kubeconfig": layout.kubeconfig("controller-manager"),
        "controllers": ",".join(CONTROLLERS),
        # Under RBAC each controller has the rights of its own service account.
        "use-service-account-credentials": "true",
        "service-account-private-key-file": layout.pki("service-account.key"),
        "root-ca-file": layout.pki("ca.crt"),
        "leader-elect": "false",
        "secure-port": 0,  # nobody needs it, and every port may be taken
        # Matches the leases below.
        "node-monitor-grace-period": f"{_LEASE_DURATION * 5 // 4}s",
        # With the defaults (20 and 30) thousands of new nodes and jobs take minutes.
        "kube-api-qps": 500,
        "kube-api-burst": 1000,
    }


def _scheduler_arguments(layout: SandboxLayout) -> dict[str, object]:
    return {
        "kubeconfig": layout.kubeconfig("scheduler"),
        "leader-elect": "false",
        "secure-port": 0,
    }


def _kwok_arguments(layout: SandboxLayout, running: frozenset[Component]) -> dict[str, object]:
    # Only the node lifecycle controller reads leases; without them it marks nodes as lost.
    is_read = Component.CONTROLLER_MANAGER in running
    return {
        "kubeconfig": layout.kubeconfig("kwok"),
        "config": PACKAGE / "stages" / "stages.yaml",
        "manage-all-nodes": "true",
        "node-lease-duration-seconds": _LEASE_DURATION if is_read else 0,
    }
