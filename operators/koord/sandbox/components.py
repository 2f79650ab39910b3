"""What runs in a sandbox, and with which arguments.

Pure: from the layout of a sandbox's directory to command lines. Why each unusual argument is
there stands next to it; what is not named keeps its default, so that the sandbox behaves like any
cluster of that version.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

PACKAGE = Path(__file__).parent


class Component(StrEnum):
    """A process of the control plane, by the name of its binary. The order is that of dying."""

    APISERVER = "kube-apiserver"
    ETCD = "etcd"
    KWOK = "kwok"
    CONTROLLER_MANAGER = "kube-controller-manager"
    SCHEDULER = "kube-scheduler"


ALWAYS = frozenset({Component.ETCD, Component.APISERVER})
"""Without these there is no sandbox."""

_LEASE_DURATION = 200
"""In seconds. kwok renews four times as often. A kubelet's 40 s would be 500 writes a second for
5,000 nodes, a whole processor, to tell that nodes which cannot fail have not failed."""

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
"""What workloads and scheduling meet; the others would only cost processor time."""


@dataclass(frozen=True, slots=True)
class SandboxLayout:
    """Paths and ports of one sandbox."""

    directory: Path
    server_port: int
    etcd_port: int
    etcd_peer_port: int

    @property
    def server(self) -> str:
        """The address of the API server."""
        return f"https://127.0.0.1:{self.server_port}"

    @property
    def audit_log(self) -> Path:
        """Every write, one JSON document per line."""
        return self.directory / "audit.log"

    @property
    def admin_kubeconfig(self) -> Path:
        """The cluster administrator's."""
        return self.kubeconfig("admin")

    def kubeconfig(self, user: str) -> Path:
        """Where the kubeconfig of one user stands."""
        return self.directory / f"{user}.kubeconfig"

    def pki(self, file: str) -> str:
        """Where a key or certificate stands."""
        return str(self.directory / "pki" / file)


def make_command(
    component: Component,
    binary: Path,
    layout: SandboxLayout,
    running: Iterable[Component],
) -> list[str]:
    """Return the command line of one component."""
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
        # The port is held for etcd until it listens; see ports.py.
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
        "authorization-mode": "Node,RBAC",
        "service-account-issuer": "https://kubernetes.default.svc.cluster.local",
        "service-account-key-file": layout.pki("service-account.pub"),
        "service-account-signing-key-file": layout.pki("service-account.key"),
        "service-cluster-ip-range": "10.96.0.0/16",
        # A loopback address is not allowed as an endpoint of the service "kubernetes".
        "endpoint-reconciler-type": "none",
        "audit-policy-file": PACKAGE / "audit-policy.yaml",
        "audit-log-path": layout.audit_log,
        # An answer is sent after its line is written: counting right after a call is exact.
        "audit-log-mode": "blocking",
        # No rotation: a count needs the whole file.
        "audit-log-maxsize": 0,
    }
    if Component.CONTROLLER_MANAGER not in running:
        # Both wait for a controller: one to create each namespace's service account, one to take
        # the taint off that a new node gets.
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
        "secure-port": 0,  # nobody asks it anything, and a port less can be taken
        # In step with the leases below.
        "node-monitor-grace-period": f"{_LEASE_DURATION * 5 // 4}s",
        # The defaults (20 and 30) let thousands of new nodes and jobs wait for minutes.
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
    # Only the node lifecycle controller reads leases, and calls a node lost without them.
    has_reader = Component.CONTROLLER_MANAGER in running
    return {
        "kubeconfig": layout.kubeconfig("kwok"),
        "config": PACKAGE / "stages" / "stages.yaml",
        "manage-all-nodes": "true",
        "node-lease-duration-seconds": _LEASE_DURATION if has_reader else 0,
    }
