"""Signatures of plans, and the Secret that holds their keys."""

import asyncio
import secrets
from base64 import b64encode
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kube.conftest import until
from tests.support.plan_keys import TEST_KEY, make_keys

from koord.kube.client import Client, Media
from koord.kube.lease import NoNamespace
from koord.kube.plan_keys import (
    CURRENT,
    SECRET,
    AnySignature,
    PlanKeys,
    PlanKeySecret,
    Trust,
)

OTHER_KEY = b"x" * 32
PLAN = '{"node":"n1","plan":"p"}'


def test_signature_counts_for_one_pod_and_one_plan() -> None:
    keys = make_keys()
    signature = keys.sign("uid-1", PLAN)
    assert keys.judge("uid-1", PLAN, signature) is Trust.CURRENT
    assert keys.judge("uid-2", PLAN, signature) is Trust.NONE
    assert keys.judge("uid-1", PLAN.replace("n1", "n2"), signature) is Trust.NONE
    assert keys.judge("uid-1", PLAN, PlanKeys(OTHER_KEY).sign("uid-1", PLAN)) is Trust.NONE
    assert PlanKeys().judge("uid-1", PLAN, signature) is Trust.NONE


def test_uid_and_plan_cannot_be_divided_otherwise() -> None:
    keys = make_keys()
    assert keys.judge("ab", "c", keys.sign("a", "bc")) is Trust.NONE


@given(st.text(), st.text(st.characters(exclude_categories=())), st.text())
def test_any_text_is_judged(uid: str, text: str, signature: str) -> None:
    assert make_keys().judge(uid, text, signature) is Trust.NONE


def test_earlier_keys_still_count_and_are_told_from_the_current_one() -> None:
    signature = make_keys().sign("u", PLAN)
    keys = PlanKeys(OTHER_KEY, [TEST_KEY])
    assert keys.judge("u", PLAN, signature) is Trust.OUTDATED
    assert not keys.met_unknown
    keys.replace(OTHER_KEY, [])
    assert keys.judge("u", PLAN, signature) is Trust.NONE
    assert keys.met_unknown


def test_unsigned_plans_count_only_while_they_are_taken_over() -> None:
    keys = make_keys()
    assert keys.judge("u", PLAN, "") is Trust.NONE
    keys.accepts_unsigned = True
    assert keys.judge("u", PLAN, "") is Trust.OUTDATED
    assert keys.judge("u", PLAN, keys.sign("u", PLAN)) is Trust.CURRENT


def test_readers_without_a_key_tell_signed_plans_from_others() -> None:
    assert AnySignature().judge("u", PLAN, "") is Trust.NONE
    assert AnySignature().judge("u", PLAN, "any") is Trust.CURRENT


def test_keys_are_not_printed() -> None:
    assert TEST_KEY.decode() not in repr(make_keys())
    assert TEST_KEY.decode() not in str(vars(make_keys()).keys())


@pytest.fixture
async def path(client: Client, namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/secrets/{SECRET}"


async def read(client: Client, path: str) -> dict[str, str]:
    found: dict[str, Any] = await client.get(path, dict)
    return found.get("data") or {}


async def load(client: Client, namespace: str, *, makes_keys: bool = True) -> PlanKeys:
    keys = PlanKeys()
    await PlanKeySecret(client, namespace, keys, makes_keys=makes_keys).load()
    return keys


async def test_processes_that_start_together_agree(
    client: Client, namespace: str, path: str
) -> None:
    first, *others = await asyncio.gather(*(load(client, namespace) for _ in range(4)))
    signature = first.sign("u", PLAN)
    assert all(one.judge("u", PLAN, signature) is Trust.CURRENT for one in others)
    assert (await read(client, path)).keys() == {CURRENT}


async def test_who_only_reads_waits_for_the_secret(client: Client, namespace: str) -> None:
    reader = asyncio.create_task(load(client, namespace, makes_keys=False))
    with suppress(TimeoutError):
        await asyncio.wait_for(asyncio.shield(reader), 0.5)
    assert not reader.done()
    signature = (await load(client, namespace)).sign("u", PLAN)
    assert (await reader).judge("u", PLAN, signature) is Trust.CURRENT


async def test_missing_namespace_is_named(client: Client) -> None:
    with pytest.raises(NoNamespace, match="kubectl create namespace nowhere"):
        await load(client, "nowhere")


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("READ_SECONDS", "UNKNOWN_SECONDS", "_TICK"):
        monkeypatch.setattr(f"koord.kube.plan_keys.{name}", 0.05)


ROTATION = [{"op": "move", "from": "/data/current", "path": "/data/previous"}]


@pytest.mark.usefixtures("fast")
async def test_rotation_makes_a_key_and_keeps_the_earlier(
    client: Client, namespace: str, path: str
) -> None:
    keys, changes = PlanKeys(), []

    async def changed() -> None:
        changes.append(1)

    secret = PlanKeySecret(client, namespace, keys, makes_keys=True)
    await secret.load()
    before = await read(client, path)
    signature = keys.sign("u", PLAN)
    task = asyncio.create_task(secret.run(changed))
    await client.patch(path, ROTATION, Media.JSON_PATCH)
    await until(lambda: bool(changes))
    after = await read(client, path)
    assert after["previous"] == before["current"] != after["current"]
    assert keys.judge("u", PLAN, signature) is Trust.OUTDATED
    assert keys.judge("u", PLAN, keys.sign("u", PLAN)) is Trust.CURRENT
    # A Secret that is deleted gets its keys again.
    await client.delete(path)
    while (await _read_or_nothing(client, path)) != after:  # noqa: ASYNC110 - of the server
        await asyncio.sleep(0.05)
    task.cancel()


async def _read_or_nothing(client: Client, path: str) -> dict[str, str]:
    with suppress(Exception):
        return await read(client, path)
    return {}


@pytest.mark.usefixtures("fast")
@pytest.mark.parametrize("field", [b64encode(secrets.token_bytes(8)).decode(), ""])
async def test_keys_that_are_none_are_not_used(
    client: Client, namespace: str, path: str, field: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A field of somebody is not replaced unless it is empty; the log says what is wrong."""
    body = {"metadata": {"name": SECRET}, "data": {CURRENT: field, "previous": field}}
    await client.post(path.rpartition("/")[0], body)
    task = asyncio.create_task(load(client, namespace))
    if not field:
        (await task).sign("u", PLAN)
        return
    await until(lambda: "Cannot read the keys" in caplog.text)
    assert not task.done()
    assert field not in caplog.text
    task.cancel()
