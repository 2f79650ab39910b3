"""The command ``koord what-if``: only its command line."""
# ruff: noqa: PLC0415 - what it does takes longer to load than --help and completion should

from typing import Annotated, TypeAlias

import typer

from koord.cli.common import AsExitCode, Context, Form, Kubeconfig, Output
from koord.cli.queries import Namespace

_Names: TypeAlias = list[str] | None


def _option(name: str, metavar: str, about: str) -> object:
    return typer.Option(name, metavar=metavar, help=about, show_default=False)


def what_if(  # noqa: PLR0917 - typer calls it, by name
    file: Annotated[
        str, typer.Option("-f", "--filename", help="Manifests, or a list of edits; - for stdin.")
    ] = "",
    delete: Annotated[_Names, _option("--delete", "KIND/NAME", "Delete it; repeatable.")] = None,
    cordon: Annotated[_Names, _option("--cordon", "NODE", "Cordon it; repeatable.")] = None,
    uncordon: Annotated[_Names, _option("--uncordon", "NODE", "Uncordon it; repeatable.")] = None,
    drain: Annotated[_Names, _option("--drain", "NODE", "Drain it; repeatable.")] = None,
    remove_node: Annotated[
        _Names, _option("--remove-node", "NODE", "Remove it; repeatable.")
    ] = None,
    add_nodes: Annotated[
        _Names, _option("--add-nodes", "COUNTxNODE", "Add empty nodes like this one; repeatable.")
    ] = None,
    namespace: Namespace = "",
    output: Form = Output.TEXT,
    as_exit_code: AsExitCode = False,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Show what would change if a job was submitted, or nodes came or went.

    Plans on this machine, with your own rights; changes nothing. Several edits are
    tried together: in the order of the options above, those of the file last. With
    --exit-code it ends with 1 if something comes to wait.

    For example:

      koord what-if -f job.yaml

      koord what-if --drain gpu-node-7 --drain gpu-node-8

      koord what-if --add-nodes 2xgpu-node-7 -f job.yaml -o json
    """
    from koord.cli.edit_documents import TypedEdits
    from koord.cli.what_if_view import show

    lists = (delete, cordon, uncordon, drain, remove_node, add_nodes)
    typed = TypedEdits(*(tuple(each or ()) for each in lists))
    show(file, typed, (namespace, kubeconfig, context), output, as_exit_code=as_exit_code)
