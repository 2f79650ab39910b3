"""``koord release``: takes our gate off waiting pods, for leaving. Only its command line."""

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
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Take our gate off waiting pods, so that others place them.

    Gangs are not placed as a whole then. While the operators run they place such pods themselves;
    stop them first. Asks before it changes anything.

    For example:

      koord release bert -n team-a

      koord release job/bert -n team-a

      koord release --all --all-namespaces --yes
    """
    if sum(map(bool, (name, selector, everything))) != 1:
        raise typer.BadParameter("give a NAME, or -l SELECTOR, or --all")
    from koord.cli.release_pods import Wanted, release_pods  # noqa: PLC0415 - slow

    kind = ""
    if "/" in name:
        kind, namespace, name = parse_target(name, namespace, "")
    if kind not in _KINDS:
        raise typer.BadParameter(f"give one of {', '.join(_KINDS[1:])}", param_hint="NAME")
    wanted = Wanted(kind, name, selector, namespace, all_namespaces)
    release_pods(wanted, kubeconfig, context, yes=yes)
