"""Loops of what the leader tells of devices and answers in objects."""

import asyncio
from typing import Any

from tests.builders import make_pod
from tests.device.test_plugin import gpu_cluster, settle, whole
from tests.isolation.plays import NAMES, Patch, play

from koord.controllers import schedule_explanations
from koord.controllers.schedule_explanations import ExplanationAnswers
from koord.core.engine.state import ClusterState
from koord.kube.schedule_explanations import ExplanationKey, ExplanationSpec
from koord.runtime import device_series
from koord.runtime.device_series import DeviceSeries


@play("device-series")
def nodes_with_gpus(patch: Patch) -> list[str]:
    cluster = gpu_cluster(3)
    settle(cluster, *(whole(name, 8) for name in NAMES))
    state = cluster.state
    pods = {node: state.pods[uid].name for uid, node in state.assumed.items()}
    list_shares = device_series.list_card_shares

    def list_some(devices: Any, known: Any, node: str) -> Any:
        if pods[node] == "bad":
            raise ZeroDivisionError
        return list_shares(devices, known, node)

    patch.setattr(device_series, "list_card_shares", list_some)
    held = DeviceSeries(state, lambda: True).read()
    return sorted({share.pod for shares in held.nodes.values() for share in shares})


class FakeApi:
    """Objects that ask about pods of their names."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.keys = [ExplanationKey("default", name, name, 0.0) for name in names]
        self.written: dict[str, Any] = {}
        self.deleted: list[str] = []

    async def list(self) -> list[ExplanationKey]:
        return self.keys

    async def read(self, key: ExplanationKey) -> ExplanationSpec | None:
        return ExplanationSpec(f"default/{key.name}", 3600)

    async def write(self, key: ExplanationKey, status: Any) -> None:
        self.written[key.name] = status

    async def delete(self, key: ExplanationKey) -> None:
        self.deleted.append(key.name)


@play("schedule-explanations")
def explained_objects(patch: Patch) -> list[str]:
    cluster = gpu_cluster(1)
    cluster.pods(*(make_pod(name) for name in NAMES))
    explain = schedule_explanations.explain_schedule

    def explain_some(state: ClusterState, question: Any, now: float) -> Any:
        if question.key.endswith("/bad"):
            raise ZeroDivisionError
        return explain(state, question, now)

    patch.setattr(schedule_explanations, "explain_schedule", explain_some)
    api = FakeApi(NAMES)
    answers = ExplanationAnswers(api, cluster.state, lambda: True, lambda: 100.0)

    async def look_at_all() -> None:
        for _ in NAMES:
            await answers.look()

    asyncio.run(look_at_all())
    return sorted(api.written)
