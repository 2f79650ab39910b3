"""``koord sandbox`` and ``koord demo``: their command lines, output and errors.

What they do is in ``koord_sandbox`` and ``koord_sandbox.demo``.
"""

import shlex
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, NoReturn

import msgspec
import typer
from rich.table import Table

from koord.cli.common import say, say_error
from koord.cli.output import SafeConsole
from koord_sandbox import Component, ControlPlane, Sandbox, SandboxError, list_shapes, load_shape
from koord_sandbox.binaries import KUBECTL, find_binaries
from koord_sandbox.build import ConsoleReporter, list_kubernetes
from koord_sandbox.demo import DemoError
from koord_sandbox.node_reports import report_devices, report_numa, set_health
from koord_sandbox.record import (
    DEFAULT_NAME,
    SandboxStatus,
    check_name,
    list_names,
    list_statuses,
    take_down,
)

_MOST_NODES = 10_000

sandbox = typer.Typer(
    help="A real Kubernetes control plane on this machine, without containers.",
    no_args_is_help=True,
)
_out = SafeConsole(highlight=False, soft_wrap=True)
_err = SafeConsole(highlight=False, soft_wrap=True, stderr=True)


class SandboxOutput(StrEnum):
    """How the status is written."""

    TABLE = "table"
    JSON = "json"


Name = Annotated[str, typer.Option(help="Name of the sandbox; several can run side by side.")]
Shape = Annotated[
    str,
    typer.Option(
        help=f"Shape of the fake nodes: {', '.join(list_shapes())}.",
        autocompletion=list_shapes,
    ),
]
Components = Annotated[
    list[Component] | None,
    typer.Option(
        "--component",
        metavar="NAME",
        help="What runs besides etcd and kube-apiserver, such as kwok; can be repeated. "
        "Default: everything.",
    ),
]
Kubernetes = Annotated[
    str | None,
    typer.Option(
        metavar="MINOR",
        help="Version of Kubernetes, such as 1.33. Default: $KOORD_KUBERNETES, or the newest.",
        autocompletion=list_kubernetes,
    ),
]


@contextmanager
def _explain_errors() -> Iterator[None]:
    """Turn an error of the sandbox into a message and the exit code 1."""
    try:
        yield
    except SandboxError as error:
        _err.print("[bold red]Error:[/] ", end="")
        _err.print(str(error), markup=False)
        raise typer.Exit(1) from None


@sandbox.command()
def up(
    name: Name = DEFAULT_NAME,
    nodes: Annotated[
        int, typer.Option(min=0, max=_MOST_NODES, help="Number of fake nodes to create.")
    ] = 8,
    shape: Shape = "a100x8",
    component: Components = None,
    kubernetes: Kubernetes = None,
) -> None:
    """Start a sandbox; it runs until `koord sandbox down`.

    The first start builds the control plane, which takes some minutes.

    For example:

      koord sandbox up --nodes 64 --shape h100x8

      koord sandbox up --name small --nodes 2 --component kwok

      koord sandbox up --kubernetes 1.33
    """
    components = component or tuple(Component)
    reporter = ConsoleReporter()
    with _explain_errors():
        # Typos are reported before anything is built, which takes minutes the first time.
        check_name(name)
        load_shape(shape)
        # Separately, so that each step shows its own time.
        find_binaries(components, reporter, kubernetes)
        with reporter.step(f"starting the sandbox {name}"):
            box = Sandbox(name, components=components, kubernetes=kubernetes)
            _add_nodes(box, nodes, shape)
        version = box.record.programs[Component.APISERVER].version
        _out.print(f"Kubernetes {version} with {nodes} nodes {shape} at {box.server}")
        print_next_steps(name)
        box.detach()


def _add_nodes(box: Sandbox, nodes: int, shape: str) -> None:
    try:
        if nodes:
            box.add_nodes(nodes, shape)
    except BaseException:
        box.stop()
        raise


def print_next_steps(name: str) -> None:
    option = "" if name == DEFAULT_NAME else f" --name {name}"
    _print_plainly(f"""\
To use it, in every shell:
  eval "$(koord sandbox env{option})"
To run the operators in it, from the checkout:
  kubectl apply --server-side -f crds/ -f manifests/cluster/namespace.yaml
  koord run
To stop it:
  koord sandbox down{option}""")


@sandbox.command()
def down(
    name: Name = DEFAULT_NAME,
    everything: Annotated[bool, typer.Option("--all", help="Every sandbox of this user.")] = False,
) -> None:
    """Stop a sandbox and remove everything that belongs to it.

    For example:

      koord sandbox down

      koord sandbox down --all
    """
    with _explain_errors():
        for each in list_names() if everything else [name]:
            take_down(each)
            _out.print(f"sandbox {each} is gone")


@sandbox.command()
def status(
    output: Annotated[
        SandboxOutput, typer.Option("--output", "-o", help="Output format.")
    ] = SandboxOutput.TABLE,
) -> None:
    """Show every sandbox: its address, processes and binaries.

    For example: koord sandbox status --output json
    """
    statuses = list_statuses()
    if output is SandboxOutput.JSON:
        _print_plainly(msgspec.json.format(msgspec.json.encode(statuses)).decode())
    elif statuses:
        _print_table(statuses)
    else:
        _out.print("no sandboxes; `koord sandbox up` starts one")


def _print_table(statuses: list[SandboxStatus]) -> None:
    sandboxes = Table("Name", "State", "Kubernetes", "Server", "Nodes", "Since", box=None)
    processes = Table("Name", "Process", "PID", "Version", "From", box=None)
    for each in statuses:
        nodes = "" if each.nodes is None else str(each.nodes)
        since = "" if each.since is None else f"{each.since.astimezone():%Y-%m-%d %H:%M:%S}"
        server = each.programs.get(Component.APISERVER)
        version = "" if server is None else server.version
        sandboxes.add_row(each.name, each.state, version, each.server, nodes, since)
        for process, pid in each.pids.items():
            program = each.programs[process]
            processes.add_row(each.name, process, str(pid), program.version, program.source)
    for table in (sandboxes, processes):
        if table.rows:
            _out.print(table)
            _out.print()
    for each in statuses:
        if each.detail:
            _print_plainly(f"{each.name}: {each.detail}")


@sandbox.command()
def devices(
    name: Name = DEFAULT_NAME,
    fail: Annotated[
        list[str] | None,
        typer.Option(metavar="NODE/TYPE/MINOR", help="A device that fails; can be repeated."),
    ] = None,
    recover: Annotated[
        list[str] | None,
        typer.Option(metavar="NODE/TYPE/MINOR", help="A device that is healthy again."),
    ] = None,
) -> None:
    """Report the devices and NUMA nodes of the fake nodes, as agents of nodes do.

    For example:

      koord sandbox devices

      koord sandbox devices --fail a100x8-0000/gpu/3
    """
    with _explain_errors():
        client = ControlPlane.open(name).client
        if not fail and not recover:
            _out.print(f"{len(report_devices(client))} nodes report their devices")
            _out.print(f"{len(report_numa(client))} nodes report their NUMA nodes")
        for device in fail or ():
            set_health(client, device, is_healthy=False)
            _out.print(f"{device} has failed")
        for device in recover or ():
            set_health(client, device, is_healthy=True)
            _out.print(f"{device} is healthy")


@sandbox.command()
def env(name: Name = DEFAULT_NAME) -> None:
    """Print the settings with which a shell uses a sandbox, for eval.

    For example: eval "$(koord sandbox env)"
    """
    with _explain_errors():
        plane = ControlPlane.open(name)
    programs = plane.record.programs
    tools = Path(programs[KUBECTL].path).parent
    _print_plainly(f"export KUBECONFIG={shlex.quote(str(plane.kubeconfig))}")
    _print_plainly(f'export PATH={shlex.quote(str(tools))}:"$PATH"')
    # Comments last: an eval without quotes joins the lines.
    for program, program_record in programs.items():
        _print_plainly(
            f"# {program} {program_record.version} {program_record.source} {program_record.path}"
        )


@sandbox.command()
def build(kubernetes: Kubernetes = None) -> None:
    """Find or build the binaries of the control plane, and print their paths.

    For example: koord sandbox build --kubernetes 1.33
    """
    with _explain_errors():
        binaries = find_binaries(Component, ConsoleReporter(), kubernetes)
    for remark in binaries.remarks:
        _err.print(remark, markup=False)
    for name, binary in binaries.by_name.items():
        _print_plainly(f"{name} {binary.version} {binary.source} {binary.path}")


def _print_plainly(line: str) -> None:
    _out.print(line, markup=False)


_FAILED: Final = 1
_BY_SIGNAL: Final = 128
_SIGNALS: Final = (signal.SIGTERM, signal.SIGHUP)


def demo(
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the cluster and the operators up afterwards.")
    ] = False,
) -> None:
    """See gangs wait and start, on a real API server with fake nodes. Needs no cluster.

    The exit code is 0 only if everything that it claims was observed on the API server.

    For example: koord demo --keep
    """
    from koord_sandbox.demo.show import show  # noqa: PLC0415 - slow to import, unlike the sandbox

    console = SafeConsole(highlight=False)
    try:
        with _ending_on_signals():
            show(console, keep=keep)
    except KeyboardInterrupt:
        raise typer.Exit(_BY_SIGNAL + signal.SIGINT) from None
    except (DemoError, SandboxError) as error:
        say_error(error)
        for note in getattr(error, "__notes__", ()):
            say(note, err=True)
        raise typer.Exit(_FAILED) from None


@contextmanager
def _ending_on_signals() -> Iterator[None]:
    """Unwind on SIGTERM and SIGHUP as on Ctrl-C, so that nothing is left running."""
    before = {number: signal.signal(number, _end) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, _: object) -> NoReturn:
    raise SystemExit(_BY_SIGNAL + number)
