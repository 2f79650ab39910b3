"""The whole demo: from nothing to a cluster with operators, the play, and back to nothing."""

import shlex
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from rich.console import Console

from koord.demo.claims import Timing, measure
from koord.demo.errors import DemoError, NotSeenError
from koord.demo.files import Files, find_files
from koord.demo.observed import Cluster
from koord.demo.observer import Observer
from koord.demo.operators import KOORD, NAMESPACE, SERVICE_ACCOUNT, Operators
from koord.demo.play import Player
from koord.demo.scenario import NODES, PARTS, SHAPE, Command, make_scenes
from koord.demo.screen import Screen
from koord.demo.table import draw_summary
from koord.demo.watch import Server
from koord.sandbox import Component, ControlPlane, Sandbox, SandboxError
from koord.sandbox.binaries import find_binaries
from koord.sandbox.progress import ConsoleReporter

_KEPT_NAME: Final = "demo"
_COMPONENTS: Final = (
    Component.ETCD,
    Component.APISERVER,
    Component.CONTROLLER_MANAGER,
    Component.KWOK,
)
_CAPTION: Final = (
    "Every time ends with the gang's last binding, as a watch of the demo's own saw it. It begins "
    "when the gang was complete; when also nothing was in its way any more; when the demo began."
)
_USER: Final = f"system:serviceaccount:{NAMESPACE}:{SERVICE_ACCOUNT}"


def show(console: Console, *, keep: bool, koord: tuple[str, ...] = KOORD) -> None:
    """Run the demo; ``koord`` is the command line that starts the operators.

    Raises `DemoError` or `SandboxError` when anything that the demo claims was not seen; the end
    of the operators' log is a note on it. Everything is taken down then, whatever ``keep`` says.
    """
    began = time.monotonic()
    files = find_files()
    find_binaries(_COMPONENTS, ConsoleReporter(console))  # builds them, the first time
    observer = Observer()
    with Screen(console, observer.look, began) as screen, ExitStack() as stack:
        plane = _start_control_plane(stack, screen, _KEPT_NAME if keep else None)
        _install(plane, screen, files)
        with observer.watch(Server.of(plane)):
            operators = stack.enter_context(Operators(plane, koord))
            with _noting_the_log(operators):
                _wait_ready(plane, operators, screen)
                player = Player(plane, operators, observer, screen)
                for scene in make_scenes(files.examples):
                    player.play(scene)
                timings = _measure(observer.look())
                _check_who_bound(plane, screen, sum(timing.pods for timing in timings))
        if keep:
            stack.pop_all()
            operators.detach()
            plane.detach()
        else:
            with screen.step("everything is taken down"):
                stack.close()
    console.print()
    console.print(draw_summary(timings, began))
    console.print(_CAPTION, style="dim")
    if keep:
        _print_how_to_go_on(console, plane, operators)


def _start_control_plane(stack: ExitStack, screen: Screen, name: str | None) -> Sandbox:
    started = ", ".join(_COMPONENTS)
    with screen.step(f"a control plane of real parts starts: {started}"):
        plane = stack.enter_context(Sandbox(name, components=_COMPONENTS))
    version = plane.record.programs[Component.APISERVER].version
    with screen.step(f"Kubernetes {version} gets {NODES} fake nodes {SHAPE}, 8 GPUs each"):
        plane.add_nodes(NODES, SHAPE)
    return plane


def _install(plane: ControlPlane, screen: Screen, files: Files) -> None:
    """Install the project as its documentation says."""
    screen.enter(f"kubectl apply --server-side -f {files.crds}")
    plane.apply(files.crds)
    _kubectl(plane, screen, "apply", "-k", str(files.manifests))


def _kubectl(plane: ControlPlane, screen: Screen, *arguments: str) -> None:
    screen.enter(str(Command("kubectl", arguments)))
    plane.kubectl(*arguments)


def _wait_ready(plane: ControlPlane, operators: Operators, screen: Screen) -> None:
    screen.enter(f"koord run --kubeconfig {operators.kubeconfig.name}")
    # Fake nodes run no images: the Deployment would only pretend to run the operators.
    deployment = f"deployment/{SERVICE_ACCOUNT}"
    _kubectl(plane, screen, "scale", "-n", NAMESPACE, deployment, "--replicas=0")
    with screen.step(f"the operators are ready, with the rights of {_USER}"):
        operators.wait_ready()


@contextmanager
def _noting_the_log(operators: Operators) -> Iterator[None]:
    try:
        yield
    except (DemoError, SandboxError) as error:
        error.add_note("\n  ".join(["the operators said last:", *operators.tail()]))
        raise


def _measure(cluster: Cluster) -> list[Timing]:
    timings = (measure(cluster, part.gang, part.after) for part in PARTS)
    return [timing for timing in timings if timing is not None]


def _check_who_bound(plane: ControlPlane, screen: Screen, pods: int) -> None:
    """Ask the API server's audit log who did it."""
    writes = Counter(
        f"{write.verb} {write.resource}{write.subresource and '/'}{write.subresource}"
        for write in plane.writes(_USER)
        if write.code < 400
    )
    claim = f"all {pods} bindings were made by {_USER}"
    if writes["create pods/binding"] != pods:
        raise NotSeenError([claim])
    screen.confirm(claim)
    counts = ", ".join(f"{what} ({count})" for what, count in writes.most_common())
    screen.answer(f"all its writes, from the audit log: {counts}")


def _print_how_to_go_on(console: Console, plane: ControlPlane, operators: Operators) -> None:
    for line in (
        "",
        "Everything is still up, the operators too:",
        f"  export KUBECONFIG={shlex.quote(str(plane.kubeconfig))}",
        f'  eval "$(koord sandbox env --name {plane.name})"  # the same, and kubectl in the PATH',
        f"  tail -f {shlex.quote(str(operators.log))}",
        f"  koord sandbox down --name {plane.name}",
    ):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
