"""``koord explain``: says why a pod or a gang waits, and what would help.

Only the command line itself; what it does is in ``koord.cli.ask``, imported when it is to be done.
"""

from typing import Annotated, Final

import typer

from koord.api.compat import Compat
from koord.cli.options import Context, Form, Kubeconfig, Output

_KINDS: Final = {
    "pod": "Pod",
    "pods": "Pod",
    "po": "Pod",
    "podgroup": "PodGroup",
    "podgroups": "PodGroup",
    "podgroups.scheduling.sigs.k8s.io": "PodGroup",
    "pg": "PodGroup",
}


def _complete_kind(incomplete: str) -> list[str]:
    return [kind for kind in ("pod", "podgroup") if kind.startswith(incomplete)]


def _complete_name(context: typer.Context, incomplete: str) -> list[str]:
    from koord.cli.ask import Question, list_names  # noqa: PLC0415 - as in the command
    from koord.cli.cluster import TargetKind  # noqa: PLC0415 - the same

    typed = {key: value for key, value in context.params.items() if value}
    kind = _KINDS.get(typed.get("kind", ""))
    if kind is None:
        return []
    namespace, slash, _ = incomplete.rpartition("/")
    where = namespace or typed.get("namespace", "")
    access = typed.get("kubeconfig", ""), typed.get("context", "")
    names = list_names(Question(TargetKind(kind), where, "", *access))
    found = (f"{namespace}{slash}{name}" for name in names)
    return [name for name in found if name.startswith(incomplete)]


def explain(  # noqa: PLR0917 - typer calls it, by name
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help="pod (po) or podgroup (pg); KIND/NAME will do, too.",
            autocompletion=_complete_kind,
            show_default=False,
        ),
    ],
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="NAME or NAMESPACE/NAME.",
            autocompletion=_complete_name,
            show_default=False,
        ),
    ] = "",
    namespace: Annotated[
        str,
        typer.Option("--namespace", "-n", help="Where it is.", show_default="that of the context"),
    ] = "",
    output: Form = Output.TEXT,
    all_nodes: Annotated[
        bool, typer.Option("--all-nodes", help="List every node, not only the most likely ones.")
    ] = False,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    compat: Annotated[
        Compat, typer.Option(help="Whose rules the operators follow where ours differ.")
    ] = Compat.NONE,
) -> None:
    """Say why a pod or a PodGroup waits, and what would help.

    Plans as the operators do, on this machine, with your own rights; nothing is changed.

    For example:

      koord explain pod train-0

      koord explain pod team-a/train-0

      koord explain podgroup train --namespace team-a --output json

      kubectl koord explain pg/train
    """
    from koord.cli.ask import Question, ask  # noqa: PLC0415 - numpy and aiohttp are not for --help
    from koord.cli.cluster import TargetKind  # noqa: PLC0415 - the same

    kind, namespace, name = _parse_target(kind, namespace, name)
    ask(
        Question(TargetKind(kind), namespace, name, kubeconfig, context, compat),
        as_json=output is Output.JSON,
        all_nodes=all_nodes,
    )


def _parse_target(kind: str, namespace: str, name: str) -> tuple[str, str, str]:
    """Understand ``KIND NAME``, ``KIND NAMESPACE/NAME`` and the same with a slash between."""
    if not name:
        kind, _, name = kind.partition("/")
    if kind.lower() not in _KINDS:
        raise typer.BadParameter(f"{kind!r} is none of {', '.join(_KINDS)}", param_hint="KIND")
    *given, name = name.split("/")
    if not name or len(given) > 1 or given == [""]:
        raise typer.BadParameter("give a NAME or NAMESPACE/NAME", param_hint="NAME")
    if given and namespace not in {"", given[0]}:
        raise typer.BadParameter(
            f"{given[0]}/{name} is not in namespace {namespace}", param_hint="--namespace"
        )
    return _KINDS[kind.lower()], given[0] if given else namespace, name
