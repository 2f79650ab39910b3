"""``koord release``: takes our gate and our finalizer off, for leaving. Only its command line."""

from typing import Annotated, Final

import typer

from koord.cli.common import Context, Kubeconfig, complete_namespace
from koord.cli.queries import parse_target

_KINDS: Final = ("", "pod", "podgroup", "job")
"""What can be named; empty for any of them."""


def release(  # noqa: PLR0917 - typer calls it, by name
    name: Annotated[
        str,
        typer.Argument(
            metavar="[NAME]", help="A pod, a gang or a Job, also as KIND/NAME: all its pods."
        ),
    ] = "",
    selector: Annotated[str, typer.Option("--selector", "-l", help="Labels of the pods.")] = "",
    everything: Annotated[bool, typer.Option("--all", help="All pods of the namespace.")] = False,
    namespace: Annotated[
        str,
        typer.Option(
            "--namespace",
            "-n",
            help="Its namespace.",
            show_default="of the context",
            autocompletion=complete_namespace,
        ),
    ] = "",
    all_namespaces: Annotated[
        bool, typer.Option("--all-namespaces", "-A", help="All namespaces.")
    ] = False,
    finalizers: Annotated[
        bool,
        typer.Option(
            "--finalizers", help="Instead: our finalizer, off all quotas, so that they can go."
        ),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only list each pod and what becomes of it.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Take our gate off waiting pods, so that others place them.

    Gangs are not placed as a whole then. While the operators run they place such pods themselves;
    stop them first. Names the pods that wait for the operators, and what becomes of each, and asks
    before it changes anything.

    For example:

      koord release bert -n team-a

      koord release job/bert -n team-a

      koord release --all --all-namespaces --dry-run

      koord release --finalizers
    """
    if sum(map(bool, (name, selector, everything, finalizers))) != 1:
        raise typer.BadParameter("give a NAME, or -l SELECTOR, or --all, or --finalizers")
    from koord.cli.releasing import ReleaseOptions, ReleaseRequest, release_pods  # noqa: PLC0415 - slow

    way = ReleaseOptions(yes, dry_run)
    if finalizers:
        from koord.cli.releasing import release_quotas  # noqa: PLC0415 - slow

        release_quotas(kubeconfig, context, way)
        return

    kind = ""
    if "/" in name:
        kind, namespace, name = parse_target(name, namespace, "")
    if kind not in _KINDS:
        raise typer.BadParameter(f"give one of {', '.join(_KINDS[1:])}", param_hint="NAME")
    wanted = ReleaseRequest(kind, name, selector, namespace, all_namespaces)
    release_pods(wanted, kubeconfig, context, way)
