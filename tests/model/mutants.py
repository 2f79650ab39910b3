"""Mutants of the operators: each must break a rule, or else the model finds nothing.

A mutant replaces one name of the operators for as long as it is in force.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import koord.controllers.commit as commit_module
import koord.controllers.placement as placement_module
import koord.core.engine.state as state_module
import koord.core.gang.start as permit_module
import koord.core.model.pod_charge as charges_module
import koord.kube.binder as binder_module
import koord.kube.release as release_module
import koord.kube.store as store_module
import koord.runtime.wiring as wiring_module
from koord.kube.outcomes import Done, PodGone

_release = binder_module.Binder.release
_make_patch = release_module.make_release_patch
_bind = binder_module._Bind.write


def _patch_without_uid(*args: Any) -> list[dict[str, Any]]:
    return _make_patch(*args)[1:]


def _patch_without_gate(*args: Any) -> list[dict[str, Any]]:
    operations = _make_patch(*args)
    return [operations[0], *operations[2:]]


async def _release_later(self: Any, *args: Any) -> Done:
    _release_later.tasks.append(asyncio.ensure_future(_release(self, *args)))  # type: ignore[attr-defined]
    return Done()


_release_later.tasks = []  # type: ignore[attr-defined]


async def _bind_without_uid(self: Any, client: Any) -> None:
    post = client.post

    async def strip(path: str, body: Any) -> Any:
        body["metadata"].pop("uid", None)
        return await post(path, body)

    with patch.object(client, "post", strip):
        await _bind(self, client)


async def _nothing(*_: Any) -> None:
    """Do nothing."""


async def _gone(*_: Any) -> PodGone:
    return PodGone()


def _charge_nodes_only(pod: Any) -> str:
    return "" if pod.phase.is_terminal else pod.node


Replacement = tuple[Any, str, Any]
MUTANTS: dict[str, Replacement] = {
    "release without a test of the uid": (
        binder_module,
        "make_release_patch",
        _patch_without_uid,
    ),
    "bind without the uid": (binder_module._Bind, "write", _bind_without_uid),
    "bind before the release is confirmed": (binder_module.Binder, "release", _release_later),
    "forget what is assumed at once": (
        state_module.ClusterState,
        "assume",
        lambda *_: None,
    ),
    "forget a pinned pod before its release is seen": (
        state_module.ClusterState,
        "forget_once_released",
        state_module.ClusterState.forget,
    ),
    "ignore deletes of a list": (store_module.Store, "retain", lambda *_: []),
    "no minimum between release and binding": (
        commit_module,
        "_has_quorum",
        lambda *_: True,
    ),
    "no minimum at all": (permit_module.PermitState, "required", lambda *_, **__: 0),
    "a new leader does not catch up": (wiring_module.Parts, "catch_up", _nothing),
    "plan on copies that are known to be old": (
        placement_module.PlacementController,
        "_may_plan",
        property(lambda self: True),
    ),
    # To take a server error for final is no defect here: before any refusal counts, a look at the
    # pod tells whether the write was carried out, and a pod to which none was is tried again soon.
    "a conflict is final": (binder_module.Binder, "_read", _gone),
    "pods are not pinned": (release_module, "_pin", lambda *_: []),
    "released pods hold no place": (charges_module, "node_charged", _charge_nodes_only),
    "relist_since pods are tried again at once": (
        placement_module.Queue,
        "penalise",
        lambda *_: None,
    ),
}


@contextmanager
def mutant(name: str) -> Iterator[None]:
    """Install one mutant."""
    target, attribute, replacement = MUTANTS[name]
    with patch.object(target, attribute, replacement):
        yield
