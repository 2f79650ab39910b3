"""Volumes, claims and their classes as they are in JSON, as ``koord.kube.wire`` has other kinds."""

import msgspec
from msgspec import Raw, Struct

from koord.kube.wire import WireObjectMeta


class VolumeClaimSpec(Struct, rename="camel", gc=False):
    """``spec`` of a PersistentVolumeClaim."""

    volume_name: str = ""
    storage_class_name: str | None = None
    access_modes: list[str] | None = None
    volume_mode: str | None = None
    resources: Raw = Raw()
    selector: Raw = Raw()


class VolumeClaimStatus(Struct, gc=False):
    """``status`` of a PersistentVolumeClaim."""

    phase: str = ""


class WireVolumeClaim(Struct, gc=False):
    """A PersistentVolumeClaim."""

    metadata: WireObjectMeta = msgspec.field(default_factory=WireObjectMeta)
    spec: VolumeClaimSpec = msgspec.field(default_factory=VolumeClaimSpec)
    status: VolumeClaimStatus = msgspec.field(default_factory=VolumeClaimStatus)


class VolumeNodeAffinity(Struct, gc=False):
    """``nodeAffinity`` of a PersistentVolume."""

    required: Raw = Raw()


class VolumeClaimRef(Struct, gc=False):
    """``claimRef`` of a PersistentVolume."""

    namespace: str = ""
    name: str = ""


class VolumeSpec(Struct, rename="camel", gc=False):
    """``spec`` of a PersistentVolume: its place, what it offers, and whether it moved to CSI."""

    node_affinity: VolumeNodeAffinity | None = None
    storage_class_name: str = ""
    access_modes: list[str] | None = None
    volume_mode: str | None = None
    capacity: Raw = Raw()
    claim_ref: VolumeClaimRef | None = None
    gce_persistent_disk: Raw = Raw()
    aws_elastic_block_store: Raw = Raw()
    azure_disk: Raw = Raw()
    cinder: Raw = Raw()
    portworx_volume: Raw = Raw()


class VolumeStatus(Struct, gc=False):
    """``status`` of a PersistentVolume."""

    phase: str = ""


class WireVolume(Struct, gc=False):
    """A PersistentVolume."""

    metadata: WireObjectMeta = msgspec.field(default_factory=WireObjectMeta)
    spec: VolumeSpec = msgspec.field(default_factory=VolumeSpec)
    status: VolumeStatus = msgspec.field(default_factory=VolumeStatus)


class WireStorageClass(Struct, rename="camel", gc=False):
    """A StorageClass."""

    metadata: WireObjectMeta = msgspec.field(default_factory=WireObjectMeta)
    volume_binding_mode: str | None = None
    provisioner: str = ""
    allowed_topologies: Raw = Raw()
