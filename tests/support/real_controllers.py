"""The controllers of frameworks themselves, built from their Go modules and run beside a sandbox.

A controller is a module of its own in ``tools/controllers``, which pins its version. It is built on
demand (minutes each) and kept in the cache. Its CRDs and its webhooks are those of the module; the
webhooks are called at an address of this machine, with a certificate that is made here.
"""

import base64
import hashlib
import ipaddress
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml
from cryptography import x509

from koord_sandbox import Sandbox
from koord_sandbox.build import ConsoleReporter, find_go, make_go_environment
from koord_sandbox.credentials import Authority, User
from koord_sandbox.errors import SandboxApiError
from koord_sandbox.paths import CHECKOUT, cache_directory

MODULES: Final = CHECKOUT / "tools" / "controllers"
_READY_WITHIN: Final = 120.0
_HERE: Final = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
_WEBHOOKS: Final = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


@dataclass(frozen=True, slots=True)
class Ports:
    """Addresses of one running controller, and where its certificate is."""

    webhook: int
    health: int
    certificates: Path


@dataclass(frozen=True, slots=True)
class RealController:
    """How a controller is built and started."""

    name: str
    module: str
    package: str
    crds: tuple[str, ...]
    """Files of the module, as patterns."""
    arguments: Callable[[Ports], tuple[str, ...]]
    webhooks: str = ""
    """The file of the module that registers them; empty: it runs without."""
    config: Callable[[Ports], Mapping[str, Any]] | None = None
    health: int = 0
    """The port where it says that it runs, if that cannot be chosen."""
    certificates: Path | None = None
    """Where it looks for its certificate, if that cannot be chosen."""
    more_certificates: Path | None = None
    """Where it looks for the one of its metrics, although it serves none."""
    before: str = ""
    """Objects that have to be there first, as YAML."""

    @property
    def folder(self) -> Path:
        return MODULES / self.name


def _configure(group: str) -> Callable[[Ports], Mapping[str, Any]]:
    """Return a configuration in the form of JobSet, LeaderWorkerSet and Kueue."""
    return lambda ports: {
        "apiVersion": f"config.{group}/{'v1beta2' if 'kueue' in group else 'v1alpha1'}",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": f"127.0.0.1:{ports.health}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {
            "port": ports.webhook,
            "host": "127.0.0.1",
            "certDir": str(ports.certificates),
        },
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
    }


def _configure_kueue(ports: Ports) -> Mapping[str, Any]:
    frameworks = ["batch/job", "pod", "statefulset"]
    return {
        **_configure("kueue.x-k8s.io")(ports),
        "integrations": {"frameworks": frameworks},
        "featureGates": {"VisibilityOnDemand": False},
    }


_ENABLED: Final = ("pytorch", "tf")
_OF_KUBEFLOW: Final = """
{apiVersion: v1, kind: Namespace, metadata: {name: kubeflow}}
---
apiVersion: v1
kind: Secret
metadata: {name: training-operator-webhook-cert, namespace: kubeflow}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: validator.training-operator.kubeflow.org}
webhooks: []
"""
"""The operator keeps its own certificates there. Its webhooks only validate, and are not called."""


CONTROLLERS: Final = {
    controller.name: controller
    for controller in (
        RealController(
            "jobset",
            "sigs.k8s.io/jobset",
            "sigs.k8s.io/jobset",
            ("config/components/crd/bases/*.yaml",),
            lambda _: ("--metrics-bind-address=0",),
            "config/components/webhook/manifests.yaml",
            _configure("jobset.x-k8s.io"),
        ),
        RealController(
            "lws",
            "sigs.k8s.io/lws",
            "sigs.k8s.io/lws/cmd",
            ("config/crd/bases/*.yaml",),
            lambda _: (),
            "config/webhook/manifests.yaml",
            _configure("lws.x-k8s.io"),
        ),
        RealController(
            "mpi-operator",
            "github.com/kubeflow/mpi-operator",
            "github.com/kubeflow/mpi-operator/cmd/mpi-operator",
            ("manifests/base/kubeflow.org_mpijobs.yaml",),
            lambda _: ("--lock-namespace=default", "--kube-api-qps=200", "--kube-api-burst=200"),
            health=8080,
        ),
        RealController(
            "training-operator",
            "github.com/kubeflow/training-operator",
            "github.com/kubeflow/training-operator/cmd/training-operator.v1",
            tuple(f"manifests/base/crds/kubeflow.org_{kind}jobs.yaml" for kind in _ENABLED),
            lambda ports: (
                "--metrics-bind-address=0",
                f"--health-probe-bind-address=127.0.0.1:{ports.health}",
                f"--webhook-server-port={ports.webhook}",
                "--enable-scheme=pytorchjob",
                "--enable-scheme=tfjob",
            ),
            certificates=Path("/tmp/k8s-webhook-server/serving-certs"),  # noqa: S108
            before=_OF_KUBEFLOW,
        ),
        RealController(
            "kuberay",
            "github.com/ray-project/kuberay/ray-operator",
            "github.com/ray-project/kuberay/ray-operator",
            ("config/crd/bases/*.yaml",),
            lambda ports: (
                "--metrics-addr=0",
                f"--health-probe-bind-address=127.0.0.1:{ports.health}",
                "--enable-leader-election=false",
            ),
        ),
        RealController(
            "kueue",
            "sigs.k8s.io/kueue",
            "sigs.k8s.io/kueue/cmd/kueue",
            ("config/components/crd/bases/*.yaml",),
            lambda _: (),
            "config/components/webhook/manifests.yaml",
            _configure_kueue,
            more_certificates=Path("/etc/kueue/metrics/certs"),
        ),
    )
}


def find_folder(controller: RealController) -> Path:
    """Return where the sources of the module are."""
    answer = subprocess.run(
        [str(_go()), "list", "-mod=readonly", "-m", "-f", "{{.Dir}}", controller.module],
        cwd=controller.folder,
        env=make_go_environment(),
        check=True,
        capture_output=True,
        text=True,
    )
    return Path(answer.stdout.strip())


def _go() -> Path:
    return find_go(MODULES.parent / "controlplane", ConsoleReporter())


def find_program(controller: RealController) -> Path:
    """Return where the built program is, or will be."""
    key = hashlib.sha256()
    for file in ("go.mod", "go.sum"):
        key.update((controller.folder / file).read_bytes())
    return cache_directory() / "controllers" / key.hexdigest()[:16] / controller.name


def build(controller: RealController) -> Path:
    """Return the program, after building it if it is missing."""
    program = find_program(controller)
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        partial = program.with_suffix(f".{os.getpid()}.partial")
        flags = ["-mod=readonly", "-trimpath", "-ldflags=-s -w", "-o", str(partial)]
        subprocess.run(
            ["nice", str(_go()), "build", *flags, controller.package],
            cwd=controller.folder,
            env=make_go_environment(),
            check=True,
        )
        partial.rename(program)
    return program


@contextmanager
def run_controller(box: Sandbox, controller: RealController, folder: Path) -> Iterator[Path]:
    """Install the kinds of a controller and run it; yields its log."""
    program, sources = build(controller), find_folder(controller)
    ports = Ports(_find_port(), controller.health or _find_port(), folder)
    for pattern in controller.crds:
        for file in sorted(sources.glob(pattern)):
            for definition in _apply(box, file.read_text(encoding="utf-8"), _without_conversion):
                _wait_until_served(box, definition["spec"])
    if controller.before:
        box.kubectl("apply", "-f", "-", stdin=controller.before)
    authority = Authority(controller.name)
    credential = authority.issue(User(controller.name), [_HERE])
    for certificates in filter(
        None, (controller.certificates or folder, controller.more_certificates)
    ):
        certificates.mkdir(parents=True, exist_ok=True)
        (certificates / "tls.crt").write_bytes(credential.certificate)
        (certificates / "tls.key").write_bytes(credential.key)
    arguments = list(controller.arguments(ports))
    if controller.config is not None:
        (folder / "config.yaml").write_text(yaml.safe_dump(controller.config(ports)), "utf-8")
        arguments.append(f"--config={folder / 'config.yaml'}")
    log = folder / "log"
    with (
        log.open("wb") as output,
        subprocess.Popen(
            [str(program), *arguments],
            env=os.environ | {"KUBECONFIG": str(box.kubeconfig)},
            cwd=folder,
            stdout=output,
            stderr=output,
        ) as process,
    ):
        try:
            _wait_for(process, ports, log, serves_webhooks=bool(controller.webhooks))
            if controller.webhooks:
                text = (sources / controller.webhooks).read_text(encoding="utf-8")
                _apply(box, text, lambda one: _at_address(one, ports, authority, controller.name))
            yield log
        finally:
            if controller.webhooks:
                for kind in _WEBHOOKS:
                    box.kubectl("delete", kind, controller.name, "--ignore-not-found")
            process.terminate()


def _wait_for(
    process: "subprocess.Popen[bytes]", ports: Ports, log: Path, *, serves_webhooks: bool
) -> None:
    end = time.monotonic() + _READY_WITHIN
    wanted = ports.webhook if serves_webhooks else ports.health
    while not _listens(wanted):
        if process.poll() is not None or time.monotonic() > end:
            raise AssertionError(f"the controller does not run:\n{log.read_text()[-4000:]}")
        time.sleep(0.2)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _find_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_until_served(box: Sandbox, definition: dict[str, Any]) -> None:
    """Some controllers end if their kind is not there yet."""
    names = [one["name"] for one in definition["versions"] if one["served"]]
    end = time.monotonic() + _READY_WITHIN
    group, plural = definition["group"], definition["names"]["plural"]
    for name in names:
        while not _is_served(box, f"/apis/{group}/{name}", plural):
            if time.monotonic() > end:
                raise AssertionError(f"{plural}.{group} is not served as {name}")
            time.sleep(0.2)


def _is_served(box: Sandbox, path: str, plural: str) -> bool:
    """Whether a kind can be listed, and whoever asks what is served is told of it."""
    try:
        box.client.get(f"{path}/{plural}")
        return any(one["name"] == plural for one in box.client.get(path)["resources"])
    except SandboxApiError:
        return False


def _apply(
    box: Sandbox, text: str, change: Callable[[dict[str, Any]], None]
) -> list[dict[str, Any]]:
    documents = [one for one in yaml.safe_load_all(text) if one]
    for document in documents:
        change(document)
    box.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(documents))
    return documents


def _without_conversion(definition: dict[str, Any]) -> None:
    definition["spec"].pop("conversion", None)


def _at_address(
    configuration: dict[str, Any], ports: Ports, authority: Authority, name: str
) -> None:
    """Have the API server call a webhook on this machine, not a Service."""
    configuration["metadata"]["name"] = name
    for webhook in configuration["webhooks"]:
        path = webhook["clientConfig"].pop("service")["path"]
        webhook["clientConfig"]["url"] = f"https://127.0.0.1:{ports.webhook}{path}"
        webhook["clientConfig"]["caBundle"] = base64.b64encode(authority.certificate).decode()
