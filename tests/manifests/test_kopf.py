"""Kopf needs no rights beyond the role of the resource that it watches.

With scanning disabled it reads the API's own list of resources (open to every authenticated
user) and then lists and watches the resource; no CustomResourceDefinitions, no namespaces.
"""

import asyncio
import logging

import kopf
import pytest

pytestmark = pytest.mark.sandbox

MANIFEST = """
apiVersion: scheduling.sigs.k8s.io/v1alpha1
kind: PodGroup
metadata: {name: seen}
spec: {minMember: 1}
"""


async def test_the_role_of_one_operator_is_enough(separate, monkeypatch, caplog):
    kubeconfig = await asyncio.to_thread(separate.kubeconfig_for, "koord-system", "koord-podgroup")
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    await asyncio.to_thread(separate.kubectl, "apply", "--filename=-", stdin=MANIFEST)
    seen = asyncio.Event()
    with caplog.at_level(logging.WARNING, logger="kopf"):
        async with asyncio.timeout(30):
            await run_until(seen)
    assert [record.message for record in caplog.records] == []
    writes = separate.writes("system:serviceaccount:koord-system:koord-podgroup")
    assert writes == []


async def run_until(seen):
    registry = kopf.OperatorRegistry()

    async def on_event(name, **_):
        if name == "seen":
            seen.set()

    kopf.on.login(registry=registry)(kopf.login_with_kubeconfig)
    kopf.on.event("podgroups.scheduling.sigs.k8s.io", registry=registry, id="seen")(on_event)
    settings = kopf.OperatorSettings()
    settings.scanning.disabled = True
    settings.posting.enabled = False
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(
            kopf.operator(
                registry=registry,
                settings=settings,
                standalone=True,
                clusterwide=True,
                stop_flag=stop,
            )
        )
        await seen.wait()
        stop.set()
