"""Queues: whose turn it is in a quota."""

from collections.abc import Iterable
from typing import Final

from koord.core.engine.plugin import Plugin
from koord.core.queue.backoff import Backoffs
from koord.core.queue.plugin import QueueOptions, Queues
from koord.domains.planning import Planning, PlanOptions
from koord.kube.translate.queues import QueuePodReader


def _make_plugins(options: PlanOptions) -> Iterable[Plugin]:
    yield Queues(options.of(QueueOptions), is_compat=options.compat)
    yield Backoffs()


PLANNING: Final = Planning(make_plugins=_make_plugins, pod_reader=QueuePodReader())
