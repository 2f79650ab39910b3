"""A real API server accepts the CRDs, and rejects what the models reject."""

from pathlib import Path
from typing import Any

import pytest
from tests.api.cases import ACCEPTED, MINIMAL, REFUSALS, RefusedSpec, make_object

from koord.api.crdgen import RESOURCE_BY_KIND, RESOURCES
from koord.api.parse import InvalidObject, parse
from koord.api.podgroup import GroupMembers, PodGroup, PodGroupStatus
from koord.api.resource import Condition
from koord_sandbox import Sandbox
from koord_sandbox.errors import KubectlError, SandboxApiError

pytestmark = pytest.mark.sandbox

SAMPLES = Path(__file__).parent / "samples"


def collection(kind: str) -> str:
    names = RESOURCE_BY_KIND[kind].names
    namespace = "namespaces/default/" if names.namespaced else ""
    return f"/apis/{names.api_version}/{namespace}{names.plural}"


def create(server: Sandbox, body: dict[str, Any], *, keep: bool = False) -> Any:
    suffix = "fieldValidation=Strict" + ("" if keep else "&dryRun=All")
    return server.client.create(f"{collection(body['kind'])}?{suffix}", body)


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.id)
def test_server_names_the_field_and_the_reason(server: Sandbox, case: RefusedSpec) -> None:
    with pytest.raises(SandboxApiError) as refusal:
        create(server, make_object(case.kind, **case.spec))

    assert (case.server_field or case.field) in str(refusal.value)
    assert (case.server_message or case.message) in str(refusal.value)


@pytest.mark.parametrize(("kind", "spec"), ACCEPTED)
def test_server_accepts_valid_objects(server: Sandbox, kind: str, spec: dict[str, Any]) -> None:
    assert create(server, make_object(kind, **spec))["kind"] == kind


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_server_accepts_the_samples(server: Sandbox, path: Path) -> None:
    applied = server.kubectl("apply", "--validate=strict", "-f", str(path))

    documents = path.read_text().split("\n---\n")
    assert len(applied.splitlines()) == len(documents)


@pytest.mark.parametrize(
    "path", sorted((SAMPLES / "invalid").glob("*.yaml")), ids=lambda path: path.stem
)
def test_server_rejects_the_invalid_samples_as_expected(server: Sandbox, path: Path) -> None:
    lines = path.read_text().splitlines()
    expected = next(
        line.removeprefix("# server: ") for line in lines if line.startswith("# server: ")
    )

    try:
        server.kubectl("create", "--dry-run=server", "--validate=strict", "-f", str(path))
        answer = "accepted"
    except KubectlError as refusal:
        answer = str(refusal)

    assert expected in answer


def test_name_of_a_pod_group_must_be_a_label_value(server: Sandbox) -> None:
    create(server, make_object("PodGroup", name="x" * 63))
    too_long = make_object("PodGroup", name="x" * 64)

    parsed = parse(PodGroup, too_long)
    with pytest.raises(SandboxApiError, match=r"metadata\.name must be at most 63 characters"):
        create(server, too_long)

    assert isinstance(parsed, InvalidObject)
    assert parsed.problems[0].field == "metadata.name"
    assert parsed.problems[0].message == "must be at most 63 characters"


def test_server_sets_the_defaults_of_koordinator(server: Sandbox) -> None:
    reservation = create(server, make_object("Reservation", preAllocationPolicy={}))
    device = create(server, make_object("Device"))

    assert reservation["spec"] | {"template": 0, "owners": 0} == {
        "template": 0,
        "owners": 0,
        "ttl": "24h",
        "allocateOnce": True,
        "preAllocationPolicy": {"mode": "Default", "enableMultiple": False},
    }
    assert device["spec"]["devices"] == [{"type": "gpu", "minor": 0, "health": False}]


def test_status_subresource_keeps_only_known_fields(server: Sandbox) -> None:
    create(server, make_object("PodGroup", name="counted"), keep=True)
    path = f"{collection('PodGroup')}/counted"
    condition = Condition(
        type="Placed",
        status="False",
        reason="NoDomainFits",
        message="no block has 8 free nodes",
        last_transition_time="2026-01-31T12:00:00Z",
        observed_generation=1,
    )
    status = PodGroupStatus(
        phase="PreScheduling",
        conditions=[condition],
        members=GroupMembers(total=8, present=8, held=8),
        plan_id="p1",
    )

    server.client.patch(f"{path}/status", {"spec": {"minMember": 9}, "status": status.encode()})
    server.client.patch(f"{path}/status", {"status": {"unknown": {"a": 1}}})
    server.client.patch(path, {"status": {"phase": "Running"}})
    read_back = server.client.get(path)

    assert read_back["spec"] == MINIMAL["PodGroup"]
    assert PodGroup.model_validate(read_back).status == status
    assert "unknown" not in read_back["status"]


@pytest.mark.parametrize("kind", [resource.names.kind for resource in RESOURCES])
def test_last_valid_spec_and_template_keep_every_field(server: Sandbox, kind: str) -> None:
    create(server, make_object(kind, name="kept"), keep=True)
    path = f"{collection(kind)}/kept"
    spec = {"a": [{"b": 1}]}

    patched = server.client.patch(f"{path}/status", {"status": {"lastValidSpec": spec}})

    keeps = kind in {
        "ClusterColocationProfile",
        "ClusterNetworkTopology",
        "ColocationPolicy",
        "DefragmentationPolicy",
        "ElasticQuota",
        "ElasticQuotaProfile",
        "RebalancePolicy",
    }
    assert patched.get("status", {}).get("lastValidSpec") == (spec if keeps else None)


def test_printer_columns_of_pod_groups(server: Sandbox) -> None:
    create(server, make_object("PodGroup", name="seen", minMember=4), keep=True)
    status = PodGroupStatus(
        phase="Scheduling",
        state="Placed",
        conditions=[
            Condition(
                type="Placed",
                status="True",
                reason="Planned",
                message="",
                last_transition_time="2026-01-31T12:00:00Z",
            )
        ],
        members=GroupMembers(present=5, bound=3, running=2),
    )
    server.client.patch(f"{collection('PodGroup')}/seen/status", {"status": status.encode()})

    header, row = server.kubectl("get", "pg", "seen").splitlines()

    assert header.split() == ["NAME", "STATE", "MIN", "MEMBERS", "BOUND", "RUNNING", "AGE"]
    assert row.split()[:-1] == ["seen", "Placed", "4", "5", "3", "2"]


@pytest.mark.parametrize("resource", RESOURCES, ids=lambda resource: resource.names.kind)
def test_short_names_and_category_find_the_kind(server: Sandbox, resource: Any) -> None:
    listed = server.kubectl("api-resources", "--categories=koord", "--no-headers").splitlines()

    (line,) = (line for line in listed if line.endswith(resource.names.kind))
    short = [",".join(resource.names.short)] if resource.names.short else []
    assert line.split()[:-3] == [resource.names.plural, *short]


def test_explain_describes_every_field(server: Sandbox) -> None:
    for resource in RESOURCES:
        text = server.kubectl("explain", resource.names.crd_name, "--recursive=false")
        assert resource.names.kind in text
        for part in ("spec", "status"):
            text = server.kubectl("explain", f"{resource.names.plural}.{part}")
            assert "<no description>" not in text


def test_devices_of_two_reporters_are_merged(server: Sandbox) -> None:
    def apply(manager: str, device: dict[str, Any]) -> Any:
        body = make_object("Device", name="shared", devices=[device])
        return server.client.request(
            "PATCH",
            f"{collection('Device')}/shared?fieldManager={manager}",
            body,
            content_type="application/apply-patch+yaml",
        )

    apply("gpu-reporter", {"type": "gpu", "minor": 0, "health": True})
    both = apply("nic-reporter", {"type": "rdma", "minor": 0, "health": True})
    left = apply("nic-reporter", {"type": "rdma", "minor": 1, "health": True})

    assert [d["type"] for d in both["spec"]["devices"]] == ["gpu", "rdma"]
    assert [(d["type"], d["minor"]) for d in left["spec"]["devices"]] == [("gpu", 0), ("rdma", 1)]
