"""``koord topology``: shows the domains of the network and what is free in each.

Only the command line itself; what it does is in ``koord.cli.topology_view``,
imported when it runs.
"""

from typing import Annotated

import typer

from koord.cli.options import Context, Kubeconfig, TreeForm, TreeOutput


def topology(
    name: Annotated[
        str, typer.Argument(metavar="[NAME]", help="Which ClusterNetworkTopology.")
    ] = "default",
    output: TreeForm = TreeOutput.TEXT,
    all_domains: Annotated[
        bool, typer.Option("--all", help="Show every domain and every node that is left out.")
    ] = False,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Show the domains of the network, and what is free in each.

    Made from the labels of the nodes on this machine, with your own rights.

    For example:

      koord topology

      koord topology --output json

      koord topology --output dot | dot -Tsvg > topology.svg
    """
    from koord.cli.topology_view import show  # noqa: PLC0415 - numpy and aiohttp are not for --help

    show(name, kubeconfig, context, output=output, show_all=all_domains)
