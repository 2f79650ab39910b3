"""``koord device-agent``: reports the devices of the node that it runs on."""

import asyncio
import json
import signal
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
from prometheus_client import CollectorRegistry, generate_latest

from koord.agent.device_files import DeviceFiles
from koord.agent.gpu_samples import GpuSampler
from koord.agent.loop import HOLDERS_SECONDS, MANAGER, DeviceAgent, Health
from koord.agent.nvidia import Nvidia
from koord.agent.reading import DeviceReading, VendorReader
from koord.agent.regions import RegionReader
from koord.agent.sysfs import Sysfs
from koord.cli.common import Context, ExitCode, Form, Kubeconfig, Output, fail, say
from koord.kube.client import Client
from koord.kube.config import Credentials, find_credentials
from koord.kube.errors import KubeError
from koord.runtime.address import Address, parse_address
from koord.runtime.gpu_series import GpuCollector
from koord.runtime.http import CannotListen, Sources
from koord.runtime.http_thread import HttpThread
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
    metrics_address: Annotated[
        str,
        typer.Option(help="Serve what the GPUs do on this address, such as 0.0.0.0:8080."),
    ] = "",
    hami_names: Annotated[
        bool,
        typer.Option("--hami-names", help="Serve it under the names of HAMi's old releases, too."),
    ] = False,
    hami_containers: Annotated[
        Path | None,
        typer.Option(help="Folder in which HAMi-core keeps what containers say that they use."),
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
    sysfs, address = Sysfs(sys_root), _parse(metrics_address)
    nvidia = Nvidia(sysfs)
    vendors: list[VendorReader] = [nvidia]
    if device_infos is not None:
        vendors.append(DeviceFiles(device_infos, sysfs))
    agent = DeviceAgent(node_name, sysfs, vendors, Health(healthy_after))
    regions = None
    if hami_containers is not None:
        agent.resync_seconds = HOLDERS_SECONDS
        regions = RegionReader(hami_containers, lambda: agent.holders, lambda: nvidia.cards)
    collector = GpuCollector(node_name, GpuSampler(nvidia), regions, hami_names)
    findings = agent.read()
    if output is Output.JSON:
        made = agent.make(findings, {"name": node_name}, {})
        say(json.dumps(made, indent=2))
        return
    configure_logging(LogFormat.TEXT)
    credentials = find_credentials(kubeconfig, context)
    try:
        if once:
            asyncio.run(_report(agent, credentials, findings))
        elif address is None:
            asyncio.run(_run(agent, credentials, interval))
        else:
            asyncio.run(_run_and_serve(agent, credentials, interval, address, collector))
    except KubeError as error:
        fail(f"cannot report the devices: {error}", ExitCode.UNREADABLE)
    except CannotListen as error:
        fail(f"cannot serve metrics: {error}", ExitCode.USAGE)


def _parse(text: str) -> Address | None:
    if not text:
        return None
    try:
        return parse_address(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--metrics-address") from error


async def _report(agent: DeviceAgent, credentials: Credentials, findings: DeviceReading) -> None:
    async with Client(credentials, user_agent=MANAGER) as client:
        say(f"Device {agent.node}: {await agent.report(client, findings)}")


async def _run_and_serve(
    agent: DeviceAgent,
    credentials: Credentials,
    interval: float,
    address: Address,
    collector: GpuCollector,
) -> None:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    sources = Sources(
        problem=lambda: "",
        unsynced=lambda: (),
        metrics=lambda: asyncio.to_thread(generate_latest, registry),
        state=_no_state,
    )
    async with HttpThread(credentials).run(address, sources):
        await _run(agent, credentials, interval)


async def _no_state() -> bytes:
    return b"{}"


async def _run(agent: DeviceAgent, credentials: Credentials, interval: float) -> None:
    async with Client(credentials, user_agent=MANAGER) as client:
        task = asyncio.ensure_future(agent.run(client, interval))
        # As the first process of a container it would not be ended by the signal itself.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        with suppress(asyncio.CancelledError):
            await task
