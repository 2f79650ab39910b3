"""The command ``koord sick``: only its command line."""
# ruff: noqa: PLC0415 - what it does takes longer to load than --help and completion should

from koord.cli.common import AsExitCode, Context, Form, Kubeconfig, Output
from koord.cli.watching import watchable


@watchable
def sick(
    output: Form = Output.TEXT,
    as_exit_code: AsExitCode = False,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Show what is not well in the cluster, and what to do about it.

    Nodes that are not ready or cordoned, broken devices, pods that do not end, gangs
    below their minimum, invalid quotas and topologies, reservations whose room others
    use. How the operators themselves are: koord status.

    For example:

      koord sick

      koord sick --exit-code

      koord sick --output json
    """
    from koord.cli.sick_view import show

    show(kubeconfig, context, output, as_exit_code=as_exit_code)
