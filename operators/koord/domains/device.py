"""Devices: GPUs, NICs and what pods get of them."""

from collections.abc import Iterable
from typing import Final

from koord.api.device import Device
from koord.core.device.model import DeviceOptions, DeviceResourceClaim
from koord.core.device.plugin import COMPATIBLE, PACKED, Devices
from koord.core.engine.plugin import Plugin
from koord.domains.planning import Planning, PlanOptions
from koord.kube.errors import NotFound
from koord.kube.kind import Kind, Stateless, of_model, of_plugin
from koord.kube.translate.devices import DevicePodReader, DeviceTranslator, translate_resource_claim
from koord.kube.wire import WireResourceClaim

DEVICES: Final = of_model(
    Device,
    lambda _: DeviceTranslator(),
    of_plugin(Devices),
    Devices.upsert,
    Devices.remove,
    absent_on=(NotFound,),
)
RESOURCE_CLAIMS: Final = Kind[
    WireResourceClaim, DeviceResourceClaim, Stateless[WireResourceClaim, DeviceResourceClaim]
](
    "resource.k8s.io/v1",
    "resourceclaims",
    WireResourceClaim,
    lambda _: Stateless(translate_resource_claim),
    of_plugin(Devices),
    Devices.upsert_claim,
    Devices.remove_claim,
    is_useful_in_part=True,
    absent_on=(NotFound,),
)


def _make_plugins(options: PlanOptions) -> Iterable[Plugin]:
    yield Devices(COMPATIBLE if options.compat else PACKED, options.of(DeviceOptions))


PLANNING: Final = Planning(
    kinds=(DEVICES, RESOURCE_CLAIMS), make_plugins=_make_plugins, pod_reader=DevicePodReader()
)
