"""``koord device-agent``: reports the devices of the node that it runs on."""

import asyncio
import json
import signal
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from koord.agent.device_files import DeviceFiles
from koord.agent.loop import MANAGER, DeviceAgent, Health
from koord.agent.nvidia import Nvidia
from koord.agent.reading import DeviceReading, VendorReader
from koord.agent.sysfs import Sysfs
from koord.cli.common import Context, ExitCode, Form, Kubeconfig, Output, fail, say
from koord.kube.client import Client
from koord.kube.config import find_credentials
from koord.kube.errors import KubeError
from koord.runtime.logs import LogFormat, configure_logging


def device_agent(
    *,
    node_name: Annotated[
        str, typer.Option(help="The node; its Device has the same name.", envvar="NODE_NAME")
    ],
    interval: Annotated[float, typer.Option(min=1, help="Seconds between two readings.")] = 10,
    healthy_after: Annotated[
        float,
        typer.Option(min=1, help="Seconds without a fault until a device is healthy again."),
    ] = 60,
    sys_root: Annotated[Path, typer.Option(help="Where the node's /sys is.")] = Path("/sys"),
    device_infos: Annotated[
        Path | None,
        typer.Option(help="Folder with files of vendors' tools, as Koordinator reads them."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Report once and exit.")] = False,
    output: Form = Output.TEXT,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Report the devices of this node as its Device object.

    Reads NVIDIA's library and /sys until SIGTERM or Ctrl-C. An object that somebody else reports is
    left alone. Prints the object with --output json, and does not need a cluster then.

    For example:

      koord device-agent --node-name "$(hostname)" --output json
    """
    sysfs = Sysfs(sys_root)
    vendors: list[VendorReader] = [Nvidia(sysfs)]
    if device_infos is not None:
        vendors.append(DeviceFiles(device_infos, sysfs))
    agent = DeviceAgent(node_name, sysfs, vendors, Health(healthy_after))
    findings = agent.read()
    if output is Output.JSON:
        made = agent.make(findings, {"name": node_name}, {})
        say(json.dumps(made, indent=2))
        return
    configure_logging(LogFormat.TEXT)
    try:
        asyncio.run(_run(agent, None if once else interval, findings, kubeconfig, context))
    except KubeError as error:
        fail(f"cannot report the devices: {error}", ExitCode.UNREADABLE)


async def _run(
    agent: DeviceAgent,
    interval: float | None,
    findings: DeviceReading,
    kubeconfig: str,
    context: str,
) -> None:
    async with Client(find_credentials(kubeconfig, context), user_agent=MANAGER) as client:
        if interval is None:
            say(f"Device {agent.node}: {await agent.report(client, findings)}")
            return
        task = asyncio.ensure_future(agent.run(client, interval))
        # As the first process of a container it would not be ended by the signal itself.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        with suppress(asyncio.CancelledError):
            await task
