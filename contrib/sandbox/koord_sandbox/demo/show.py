"""The whole demo: starts a cluster with operators, plays the scenes, and takes everything down."""

import os
import shlex
import subprocess
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console

from koord_sandbox import Component, ControlPlane, Sandbox, SandboxError
from koord_sandbox.binaries import KUBECTL, find_binaries
from koord_sandbox.build import ConsoleReporter
from koord_sandbox.demo import DemoError, NotSeenError, OperatorsError
from koord_sandbox.demo.observer import Observer
from koord_sandbox.demo.operators import KOORD, NAMESPACE, SERVICE_ACCOUNT, Operators
from koord_sandbox.demo.scenes import BIG_PODS, NODES, SHAPE, SMALL_PODS, Expectation, play
from koord_sandbox.demo.screen import GPUS_PER_NODE, Screen
from koord_sandbox.paths import CHECKOUT

_KEPT_NAME: Final = "demo"
_COMPONENTS: Final = tuple(
    component for component in Component if component is not Component.SCHEDULER
)
_USER: Final = f"system:serviceaccount:{NAMESPACE}:{SERVICE_ACCOUNT}"
_READY_SECONDS: Final = 60.0  # about three on an idle machine
_CLAIM_SECONDS: Final = 30.0
_COMMAND_SECONDS: Final = 60.0
_READING_SECONDS: Final = 2.0
_NEXT_STEPS: Final = """
Everything is still up, the operators too:
  export KUBECONFIG={kubeconfig}
  eval "$(koord sandbox env --name {name})"  # the same, and kubectl in the PATH
  tail -f {log}
  koord sandbox down --name {name}"""


def show(console: Console, *, keep: bool, koord: tuple[str, ...] = KOORD) -> None:
    """Run the demo; ``koord`` is the command line that starts the operators.

    Raises `DemoError` or `SandboxError` when anything that the demo claims was not seen; the end
    of the operators' log is a note on it. Everything is taken down then, whatever ``keep`` says.
    """
    began = time.monotonic()
    checkout = find_checkout()
    find_binaries(_COMPONENTS, ConsoleReporter(console))  # builds them, the first time
    observer = Observer()
    screen = Screen(console, observer.look, began)
    with screen.live, ExitStack() as stack:
        plane = _start_control_plane(stack, screen, _KEPT_NAME if keep else None)
        screen.write(f"kubectl apply --server-side -f {checkout / 'crds'}", "$")
        plane.apply(checkout / "crds")
        run_shell(plane, screen, f"kubectl apply -k {checkout / 'manifests' / 'base'}")
        with observer.watch(plane.kubeconfig):
            operators = stack.enter_context(Operators(plane, koord))
            try:
                _wait_ready(plane, operators, observer, screen)
                play(Stage(plane, operators, observer, screen), checkout / "examples" / "demo")
                _check_who_bound(plane, screen, SMALL_PODS + BIG_PODS)
            except (DemoError, SandboxError) as error:
                error.add_note("\n  ".join(["the operators said last:", *operators.tail()]))
                raise
        if keep:
            stack.pop_all()
            operators.detach()
            plane.detach()
        else:
            with screen.step("everything is taken down"):
                stack.close()
    if keep:
        log, kubeconfig = shlex.quote(str(operators.log)), shlex.quote(str(plane.kubeconfig))
        text = _NEXT_STEPS.format(name=plane.name, log=log, kubeconfig=kubeconfig)
        console.print(text, markup=False, highlight=False, soft_wrap=True)


def find_checkout(checkout: Path = CHECKOUT) -> Path:
    """Return where the manifests are, as one would type it here."""
    if not (checkout / "examples" / "demo").is_dir():
        raise DemoError(
            f"there is no {checkout / 'examples' / 'demo'}: the demo runs from a checkout of the "
            "project, because it applies the files that are shipped there"
        )
    here = Path.cwd()
    return checkout.relative_to(here) if checkout.is_relative_to(here) else checkout


@dataclass(frozen=True, slots=True)
class Stage:
    """Where scenes are played: types commands, waits for claims, and shows both."""

    plane: ControlPlane
    operators: Operators
    observer: Observer
    screen: Screen

    def narrate(self, story: str) -> None:
        self.screen.wait_for_reader(_READING_SECONDS)
        self.screen.narrate(story)

    def type(self, command: str) -> None:
        for line in run_shell(self.plane, self.screen, command).splitlines():
            self.screen.write(line)

    def expect(self, *claims: Expectation) -> None:
        """Return when all claims have come true; raise `NotSeenError` if that takes too long."""
        for claim in claims:
            with self.screen.step(claim.text):
                if not self.observer.wait(claim.is_true, _CLAIM_SECONDS, self.operators.check):
                    cluster = self.observer.look()
                    raise NotSeenError(
                        [claim.text for claim in claims if not claim.is_true(cluster)]
                    )

    def quote(self, gang: str) -> None:
        """Show why a gang waits, in the words of its PodGroup."""
        seen = self.observer.look().gang(gang)
        waiting_condition = None if seen is None else seen.waiting_condition()
        if waiting_condition is not None:
            self.screen.write(f"{waiting_condition.reason}: {waiting_condition.message}")


def run_shell(plane: ControlPlane, screen: Screen, command: str) -> str:
    """Run a command line in a shell that knows ``kubectl`` and ``koord``; return its output."""
    screen.write(command, "$")
    kubectl = shlex.join(
        [plane.record.programs[KUBECTL].path, f"--cache-dir={plane.directory / 'cache'}"]
    )
    functions = f'kubectl() {{ {kubectl} "$@"; }}\nkoord() {{ {shlex.join(KOORD)} "$@"; }}\n'
    try:
        done = subprocess.run(
            ["/bin/sh", "-ec", functions + command],
            env=os.environ | {"KUBECONFIG": str(plane.kubeconfig)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_COMMAND_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise DemoError(f"`{command}` took longer than {_COMMAND_SECONDS:.0f} s") from error
    if done.returncode != 0:
        raise DemoError(f"`{command}` ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def _start_control_plane(stack: ExitStack, screen: Screen, name: str | None) -> Sandbox:
    with screen.step(f"a control plane of real parts starts: {', '.join(_COMPONENTS)}"):
        plane = stack.enter_context(Sandbox(name, components=_COMPONENTS))
    version = plane.record.programs[Component.APISERVER].version
    nodes = f"{NODES} fake nodes {SHAPE}, {GPUS_PER_NODE} GPUs each"
    with screen.step(f"Kubernetes {version} gets {nodes}"):
        screen.nodes = plane.add_nodes(NODES, SHAPE)
    return plane


def _wait_ready(
    plane: ControlPlane, operators: Operators, observer: Observer, screen: Screen
) -> None:
    screen.write(f"koord run --kubeconfig {operators.kubeconfig.name}", "$")
    # Fake nodes run no images: the Deployment would only pretend to run the operators.
    scale = f"kubectl scale -n {NAMESPACE} deployment/{SERVICE_ACCOUNT} --replicas=0"
    run_shell(plane, screen, scale)
    with screen.step(f"the operators are ready, with the rights of {_USER}"):
        if not observer.wait(lambda _: operators.is_ready(), _READY_SECONDS, operators.check):
            raise OperatorsError(f"the operators were not ready after {_READY_SECONDS:.0f} s")


def _check_who_bound(plane: ControlPlane, screen: Screen, pods: int) -> None:
    """Compare with the API server's audit log."""
    bindings = [
        write
        for write in plane.writes(_USER)
        if write.subresource == "binding" and write.code < 400
    ]
    claim = f"all {pods} bindings were made by {_USER}"
    if len(bindings) != pods:
        raise NotSeenError([claim])
    screen.write(claim, "✓")
