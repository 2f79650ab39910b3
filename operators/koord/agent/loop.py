"""Reads the devices of the node again and again, and writes its Device object when they change.

A device counts as unhealthy at once after a fault, and until it was quiet for a while. An object
whose devices somebody else reports is left alone: its managed fields say who owns what, and
server-side apply without force is refused where they are not ours.
"""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from koord.agent.holders import GpuHolder, read_holders
from koord.agent.reading import DeviceReading, Fault, VendorReader, join
from koord.agent.report import API_VERSION, MISSING, ids_of, make_device, reported_faults
from koord.agent.sysfs import Sysfs
from koord.kube.client import Client, Media
from koord.kube.errors import Conflict, KubeError, NotFound


@dataclass(slots=True)
class Health:
    """The last fault of each device, by id; ``quiet_seconds`` without one make it healthy again."""

    quiet_seconds: float
    _last: dict[str, tuple[Fault, float]] = field(default_factory=dict)

    def note(self, faults: Mapping[str, Fault], now: float) -> None:
        self._last |= {device: (fault, now) for device, fault in faults.items()}

    def faults(self, now: float) -> dict[str, Fault]:
        """Return the devices that are unhealthy now, and why."""
        end = now - self.quiet_seconds
        self._last = {device: last for device, last in self._last.items() if last[1] > end}
        return {device: fault for device, (fault, _) in self._last.items()}


log = logging.getLogger(__name__)

MANAGER: Final = "koord-device-agent"
RESYNC_SECONDS: Final = 300.0
"""After this time the object is written again even if nothing has changed here."""
HOLDERS_SECONDS: Final = 60.0
"""The same where it has to be known which pods hold the GPUs."""
_WAIT_SECONDS: Final = 1.0
"""A signal to stop is noticed within this time."""


@dataclass(slots=True)
class DeviceAgent:
    """Reports the devices of one node; ``vendors`` find all but NICs."""

    node: str
    sysfs: Sysfs
    vendors: Sequence[VendorReader]
    health: Health
    resync_seconds: float = RESYNC_SECONDS
    holders: Mapping[str, GpuHolder] = field(default_factory=dict)
    """The pods that hold GPUs of the node, by uid, as the object said last."""
    _uid: str = ""
    """The object that was written last."""
    _node: Mapping[str, Any] = field(default_factory=dict)
    """The metadata of the node."""
    _reported: set[str] = field(default_factory=set)
    """The ids that it lists."""

    def read(self) -> DeviceReading:
        """Read all devices, and note their faults."""
        reading = join([*(vendor.read() for vendor in self.vendors), self.sysfs.find_nics()])
        self._note(reading)
        return reading

    def _note(self, reading: DeviceReading) -> None:
        missing = self._reported - {device.id for device in reading.devices}
        faults = dict.fromkeys(missing, reading.fault or MISSING)
        faults |= {device.id: device.fault for device in reading.devices if device.fault}
        self.health.note(faults, time.monotonic())

    def make(
        self, reading: DeviceReading, node: Mapping[str, Any], before: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the object to be written. Faults that an earlier process saw count, too."""
        uid = str(before.get("metadata", {}).get("uid", ""))
        if uid != self._uid:
            self._uid = uid
            self.health.note(reported_faults(before), time.monotonic())
        # The order matters: what the object lists, and this reading lacks, is missing.
        self._reported = ids_of(before)
        self._note(reading)
        faults = self.health.faults(time.monotonic())
        moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        body = make_device(node, reading, faults, before, moment)
        self._reported = ids_of(body)
        return body

    async def report(self, client: Client, reading: DeviceReading) -> str:
        """Write the object; return what was done. Raises KubeError."""
        path = f"/apis/{API_VERSION}/devices/{self.node}"
        try:
            before = await client.get(path, dict[str, Any])
        except NotFound:
            if not reading.devices:
                return f"no devices found{_explain(reading)}"
            before, self._node = {}, {}
        self.holders = read_holders(before)
        owner = find_owner(before)
        if owner:
            return f"left alone: the devices are reported by {owner}; to hand over, delete it"
        if not self._node:
            node = await client.get(f"/api/v1/nodes/{self.node}", dict[str, Any])
            self._node = node["metadata"]
        body = self.make(reading, self._node, before)
        try:
            await client.patch(path, body, Media.APPLY_PATCH, {"fieldManager": MANAGER})
        except Conflict as error:
            return f"left alone: {error.message}"
        return f"written, {_count(body)}{_explain(reading)}"

    async def run(self, client: Client, interval: float) -> None:
        """Report until cancelled: after every fault, every change, and now and then."""
        last: tuple[DeviceReading, object] | None = None
        done_at, logged = 0.0, ""
        while True:
            reading = await asyncio.to_thread(self.read)
            state = reading, self.health.faults(time.monotonic())
            if state != last or time.monotonic() - done_at > self.resync_seconds:
                try:
                    outcome = await self.report(client, reading)
                    # Only after a success: a write that failed is tried again at the next reading.
                    last, done_at = state, time.monotonic()
                except KubeError as error:
                    outcome = f"not written: {error}"
                if outcome != logged:
                    log.info("Device %s", outcome, extra={"node": self.node})
                    logged = outcome
            await self._wait(interval)

    async def _wait(self, interval: float) -> None:
        """Wait for the next reading, or until a vendor reports a fault."""
        end = time.monotonic() + interval
        while (left := end - time.monotonic()) > 0:
            seconds = min(left, _WAIT_SECONDS)
            waits = (asyncio.to_thread(vendor.wait, seconds) for vendor in self.vendors)
            reported = await asyncio.gather(*waits)
            if any(reported):
                for faults in reported:
                    self.health.note(faults, time.monotonic())
                return


def find_owner(device: Mapping[str, Any]) -> str:
    """Return the other manager that reports the health of the devices; "" if there is none.

    Whoever only adds labels to them, or writes the status, is not meant.
    """
    for managed in device.get("metadata", {}).get("managedFields") or ():
        listed = managed.get("fieldsV1", {}).get("f:spec", {}).get("f:devices", {})
        if managed.get("manager") != MANAGER and any(
            "f:health" in entry for entry in listed.values()
        ):
            return str(managed.get("manager"))
    return ""


def _count(body: Mapping[str, Any]) -> str:
    listed = body["spec"]["devices"]
    sick = sum(not device["health"] for device in listed)
    return f"{len(listed)} devices, {sick} of them unhealthy"


def _explain(reading: DeviceReading) -> str:
    return f" ({reading.fault.reason}: {reading.fault.message})" if reading.fault else ""
