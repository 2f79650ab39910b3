"""The commands that read the cluster: ``koord explain``, ``quota``, ``topology`` and ``version``.

Only their command lines. What they do is imported when they run: it takes longer to load than
``--help`` and completion should.
"""
# ruff: noqa: PLC0415 - for the reason above

import platform
import re
from importlib.metadata import version as version_of
from typing import Annotated, Final, TypeAlias

import typer

from koord.api import Compat
from koord.cli.common import (
    NO_UNITS,
    AllNamespaces,
    AsExitCode,
    Context,
    Form,
    Kubeconfig,
    Output,
    TreeForm,
    TreeOutput,
    complete_namespace,
    list_kinds_for,
    list_names_for,
    say,
)
from koord.cli.common import Namespace as OnlyIn
from koord.cli.watching import watchable

_SPELLED: Final = {
    "pod": ("pod", "pods", "po"),
    "podgroup": ("podgroup", "podgroups", "podgroups.scheduling.sigs.k8s.io", "pg"),
    "job": ("job", "jobs", "jobs.batch"),
    "statefulset": ("statefulset", "statefulsets", "statefulsets.apps", "sts"),
    "deployment": ("deployment", "deployments", "deployments.apps", "deploy"),
    "replicaset": ("replicaset", "replicasets", "replicasets.apps", "rs"),
    "quota": ("elasticquota", "elasticquotas", "eq", "quota"),
    "node": ("node", "nodes", "no"),
    "reservation": ("reservation", "reservations", "rsv"),
    "move": ("podmigrationjob", "podmigrationjobs", "pmj"),
}
_KINDS: Final = {written: kind for kind, forms in _SPELLED.items() for written in forms}
_ANY_KIND: Final = re.compile(r"[a-z][a-z0-9]*(?:[.-][a-z0-9]+)*")
"""How a kind may be written that only the cluster knows."""
Namespace: TypeAlias = Annotated[
    str,
    typer.Option(
        "--namespace",
        "-n",
        help="Its namespace.",
        show_default="that of the context",
        autocompletion=complete_namespace,
    ),
]


def _complete_kind(context: typer.Context, incomplete: str) -> list[str]:
    kind, slash, begun_name = incomplete.partition("/")
    if slash:
        return [f"{kind}/{name}" for name in _list_names(context, kind, begun_name)]
    spelled = [forms[0] for forms in _SPELLED.values() if forms[0].startswith(incomplete)]
    served = list_kinds_for(context, incomplete) if incomplete else []
    return [*spelled, *(kind for kind in served if kind not in _KINDS)]


def _complete_name(context: typer.Context, incomplete: str) -> list[str]:
    return _list_names(context, context.params.get("kind") or "", incomplete)


def _list_names(context: typer.Context, kind: str, incomplete: str) -> list[str]:
    """Return the names of this kind that begin so; ``incomplete`` may be NAMESPACE/NAME."""
    namespace, slash, _ = incomplete.rpartition("/")
    names = list_names_for(context, _KINDS.get(kind, kind), namespace)
    return [
        name
        for name in (f"{namespace}{slash}{name}" for name in names)
        if name.startswith(incomplete)
    ]


TargetName = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="NAME or NAMESPACE/NAME.",
        autocompletion=_complete_name,
        show_default=False,
    ),
]


@watchable
def explain(  # noqa: PLR0917 - typer calls it, by name
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help="pod (po), podgroup (pg), job, statefulset (sts), deployment, replicaset (rs), "
            "reservation (rsv), elasticquota (eq), node, podmigrationjob (pmj), or any kind that "
            "owns pods, such as pytorchjob or jobsets.jobset.x-k8s.io; or KIND/NAME, or a NAME "
            "alone.",
            autocompletion=_complete_kind,
            show_default=False,
        ),
    ],
    name: TargetName = "",
    namespace: Namespace = "",
    output: Form = Output.TEXT,
    all_nodes: Annotated[
        bool, typer.Option("--all-nodes", help="List every node; -o wide does, too.")
    ] = False,
    history: Annotated[
        bool, typer.Option("--history", help="Also show what happened to the gang.")
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Also try on a copy what would help.")
    ] = False,
    as_exit_code: AsExitCode = False,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    compat: Annotated[
        Compat,
        typer.Option(
            help="Follow Koordinator's behaviour where the two differ, whatever the operators do."
        ),
    ] = Compat.NONE,
) -> None:
    """Say why a pod, PodGroup, Job or Reservation waits, or who uses a quota or a node.

    Plans as the operators do, on this machine, with your own rights; changes nothing.

    For example:

      koord explain train

      koord explain pod team-a/train-0

      koord explain podgroup train --namespace team-a --output json

      koord explain job/train --exit-code

      koord explain job/train --verify

      koord explain pytorchjob/train

      kubectl koord explain eq/team-a
    """
    kind, namespace, name = find_meant(kind, namespace, name, kubeconfig, context)
    if kind == "move":
        from koord.cli.migration_view import show_job

        show_job(name, kubeconfig, context, output=output, as_exit_code=as_exit_code)
        return
    if kind in {"quota", "node"}:
        if kind == "quota":
            from koord.cli.quota_view import show_quota

            show_quota(name, namespace, kubeconfig, context, output)
        else:
            from koord.cli.top_view import show_node

            show_node(name, kubeconfig, context, output=output)
        return
    from koord.answers.reading import TargetKind
    from koord.cli.explain_view import Question, Shown, ask

    kinds = {target_kind.lower(): target_kind for target_kind in TargetKind}
    ask(
        Question(kinds.get(kind, kind), namespace, name, kubeconfig, context, compat),
        Shown(output, all_nodes or output is Output.WIDE, history, as_exit_code, verify),
    )


def find_meant(
    kind: str, namespace: str, name: str, kubeconfig: str, context: str
) -> tuple[str, str, str]:
    """Parse as ``parse_target`` does, and look up NAME and NAMESPACE/NAME without a kind."""
    kind, namespace, name = parse_subject(kind, namespace, name)
    if kind:
        return kind, namespace, name
    from koord.cli.find_target import find_named

    named = find_named(namespace, name, kubeconfig, context)
    return named.kind, named.namespace, named.name


def parse_subject(kind: str, namespace: str, name: str) -> tuple[str, str, str]:
    """Parse as ``parse_target`` does, and NAME and NAMESPACE/NAME: these have no kind."""
    first, slash, second = kind.partition("/")
    if name or first.lower() in _KINDS:
        return parse_target(kind, namespace, name)
    if second.count("/") == 1 or (first and second and namespace not in {"", first}):
        return parse_target(kind, namespace, name)
    if second.count("/") or (slash and not (first and second)) or not kind:
        raise typer.BadParameter("give a NAME, NAMESPACE/NAME or KIND/NAME", param_hint="KIND")
    return "", first if slash else namespace, second or first


def parse_target(kind: str, namespace: str, name: str) -> tuple[str, str, str]:
    """Parse ``KIND NAME``, ``KIND NAMESPACE/NAME`` and the same with a slash between.

    A kind that is none of ours is returned as it was written: the cluster may have it.
    """
    if not name:
        kind, _, name = kind.partition("/")
    written = kind.lower()
    if written not in _KINDS and not (name and _ANY_KIND.fullmatch(written)):
        meant = "" if name else f"; if it is a name, write job/{kind} or pod/{kind}"
        raise typer.BadParameter(f"there is no kind {kind!r}{meant}", param_hint="KIND")
    *given, name = name.split("/")
    if not name or len(given) > 1 or given == [""]:
        raise typer.BadParameter("give a NAME or NAMESPACE/NAME", param_hint="NAME")
    if given and namespace not in {"", given[0]}:
        raise typer.BadParameter(
            f"{given[0]}/{name} is not in namespace {namespace}", param_hint="--namespace"
        )
    return _KINDS.get(written, written), given[0] if given else namespace, name


def preempt(  # noqa: PLR0917 - typer calls it, by name
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help="pod (po), podgroup (pg), reservation (rsv), job or another workload, or "
            "KIND/NAME.",
            autocompletion=_complete_kind,
            show_default=False,
        ),
    ],
    name: TargetName = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Required: preempting is up to the operators.")
    ] = False,
    namespace: Namespace = "",
    output: Form = Output.TEXT,
    as_exit_code: AsExitCode = False,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Show whom a waiting pod, gang or reservation would preempt, and why.

    Searches as the operators do, on this machine, with your own rights; changes nothing.

    For example:

      koord preempt pod train-0 --dry-run

      koord preempt pg/train --dry-run --output json
    """
    from koord.answers.reading import TargetKind
    from koord.cli.explain_view import Question
    from koord.cli.preempt_view import show

    if not dry_run:
        given = " ".join(filter(None, (kind, name, f"-n {namespace}" if namespace else "")))
        raise typer.BadParameter(
            "the operators preempt by themselves, this only shows the plan: "
            f"koord preempt {given} --dry-run",
            param_hint="--dry-run",
        )
    kind, namespace, name = parse_target(kind, namespace, name)
    kinds = {target_kind.lower(): target_kind for target_kind in TargetKind}
    if kind in NO_UNITS:
        raise typer.BadParameter(
            "give a pod, podgroup or reservation, or a workload such as job/NAME", param_hint="KIND"
        )
    question = Question(kinds.get(kind, kind), namespace, name, kubeconfig, context)
    show(question, output, as_exit_code=as_exit_code)


@watchable
def topology(
    name: Annotated[
        str, typer.Argument(metavar="[NAME]", help="Name of the ClusterNetworkTopology.")
    ] = "default",
    output: TreeForm = TreeOutput.TEXT,
    all_domains: Annotated[
        bool, typer.Option("--all", help="Show every domain and every node outside of the tree.")
    ] = False,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Show the domains of the network, and what is free in each.

    Computed from the labels of the nodes on this machine, with your own rights.

    For example:

      koord topology

      koord topology --output json

      koord topology --output dot | dot -Tsvg > topology.svg
    """
    from koord.cli.topology_view import show

    show(name, kubeconfig, context, output=output, show_all=all_domains)


@watchable
def devices(
    node: Annotated[
        str, typer.Argument(metavar="[NODE]", help="Name of a node; by default all of them.")
    ] = "",
    output: Form = Output.TEXT,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Show the GPUs and NICs of nodes, and who holds what.

    With a node: its devices by NUMA node and PCIe switch, and what is free of each.

    For example:

      koord devices

      koord devices gpu-node-7

      koord devices gpu-node-7 --output json
    """
    from koord.cli.device_view import show

    show(node, kubeconfig, context, output=output)


def version(
    server: Annotated[
        bool, typer.Option("--server", help="Also print the version of the API server.")
    ] = False,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Print the versions of koord, of Python and of the API server.

    For example:

      koord version

      koord version --server
    """
    say(f"koord      {version_of('koord-operators')}")
    say(f"Python     {platform.python_version()}")
    if server:
        from koord.cli.explain_view import ask_version

        say(f"Kubernetes {ask_version(kubeconfig, context)}")


reservation = typer.Typer(
    no_args_is_help=True, help="Show reservations, and why a pod may use one or not."
)


@reservation.command("list")
@watchable
def reservation_list(
    output: Form = Output.TEXT, kubeconfig: Kubeconfig = "", context: Context = ""
) -> None:
    """Show what reservations hold, what is used of it by whom, and how long they last.

    For example:

      koord reservation list
    """
    from koord.cli.reservation_view import show_list

    show_list(kubeconfig, context, output=output)


@reservation.command("explain")
def reservation_explain(
    name: Annotated[str, typer.Argument(help="Name of the Reservation.", show_default=False)],
    pod: Annotated[
        str, typer.Option("--pod", metavar="NS/NAME", help="The pod.", show_default=False)
    ],
    output: Form = Output.TEXT,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Say which rules let a pod use a reservation, and how much fits.

    For example:

      koord reservation explain train-a --pod team-a/train-a-0
    """
    from koord.cli.reservation_view import show_pod

    show_pod(name, pod, kubeconfig, context, output=output)


quota = typer.Typer(no_args_is_help=True, help="Show quotas, explain shares, simulate changes.")

QuotaName: TypeAlias = Annotated[
    str, typer.Argument(metavar="NAME", help="NAME or NAMESPACE/NAME.", show_default=False)
]
_QuotaNamespace: TypeAlias = Annotated[
    str,
    typer.Option(
        "--namespace",
        "-n",
        help="Its namespace.",
        show_default="any",
        autocompletion=complete_namespace,
    ),
]
_Amounts: TypeAlias = list[str] | None
_AMOUNT: Final = "RESOURCE=AMOUNT"


@quota.command("tree")
@watchable
def quota_tree(
    namespace: OnlyIn = "",
    _all_namespaces: AllNamespaces = False,
    output: TreeForm = TreeOutput.TEXT,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Show all quotas: min, max, entitled, used and demanded amounts, and over-use.

    For example:

      koord quota tree

      koord quota tree --output dot | dot -Tsvg > quotas.svg
    """
    from koord.cli.quota_view import show_tree

    show_tree(kubeconfig, context, output, namespace)


@quota.command("explain")
@watchable
def quota_explain(
    name: QuotaName,
    namespace: _QuotaNamespace = "",
    output: Form = Output.TEXT,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Show one quota, how its share is computed, and why its pods wait.

    For example:

      koord quota explain team-a
    """
    from koord.cli.quota_view import show_quota

    show_quota(name, namespace, kubeconfig, context, output)


@quota.command("what-if")
def quota_what_if(  # noqa: PLR0917 - typer calls it, by name
    name: QuotaName,
    namespace: _QuotaNamespace = "",
    request: Annotated[
        _Amounts,
        typer.Option(
            "--request",
            "-r",
            metavar=_AMOUNT,
            help="Request of each pod; can be repeated.",
            show_default=False,
        ),
    ] = None,
    pods: Annotated[int, typer.Option(min=1, max=10_000, help="Number of pods in the gang.")] = 1,
    minimum: Annotated[
        _Amounts,
        typer.Option(
            "--min", metavar=_AMOUNT, help="New min; can be repeated.", show_default=False
        ),
    ] = None,
    maximum: Annotated[
        _Amounts,
        typer.Option(
            "--max", metavar=_AMOUNT, help="New max; can be repeated.", show_default=False
        ),
    ] = None,
    weight: Annotated[
        _Amounts,
        typer.Option(metavar=_AMOUNT, help="New weight; can be repeated.", show_default=False),
    ] = None,
    output: Form = Output.TEXT,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Simulate a gang in a quota, or an edit of the quota.

    Nothing is created or changed. With both, the gang is tried after the edit.

    For example:

      koord quota what-if team-a --pods 16 --request nvidia.com/gpu=8

      koord quota what-if team-a --min nvidia.com/gpu=64

      koord quota what-if team-a --max nvidia.com/gpu=128 -r nvidia.com/gpu=8
    """
    from koord.cli.quota_view import EditRequest, WhatIf, show_what_if

    edit = EditRequest(minimum or (), maximum or (), weight or ())
    what_if = WhatIf(name, namespace, pods, request or (), edit)
    show_what_if(what_if, kubeconfig, context, output)
