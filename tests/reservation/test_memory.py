"""What a reservation costs in memory: in proportion to its size, whatever it says."""

from __future__ import annotations

import gc
import json
import tracemalloc
from typing import Any

import msgspec
import pytest

from koord.domains.registry import make_translator_options
from koord.domains.reservation import RESERVATIONS
from koord.kube.translate.reservations import _parse_spec
from koord.kube.wire import WireCustomResource

COUNT = 20
MOST_TIMES = 5


def by_labels(at: int, number: int) -> dict[str, Any]:
    return {"labelSelector": {"matchLabels": {f"key-{number}": f"value-{at}-{number}"}}}


def by_expressions(at: int, number: int) -> dict[str, Any]:
    expression = {"key": f"key-{number}", "operator": "In", "values": [f"value-{at}-{number}"]}
    return {"labelSelector": {"matchExpressions": [expression]}}


@pytest.mark.parametrize("make_owner", [by_labels, by_expressions])
def test_owners_take_at_most_five_times_their_size(make_owner: Any) -> None:
    translator = RESERVATIONS.make_translator(make_translator_options())
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}
    texts = [
        json.dumps(
            {
                "metadata": {"name": f"r-{at}", "uid": f"uid-{at}"},
                "spec": {
                    "owners": [make_owner(at, number) for number in range(200)],
                    "template": template,
                },
            }
        ).encode()
        for at in range(COUNT)
    ]

    def read(text: bytes) -> object:
        return translator.translate(msgspec.json.decode(text, type=WireCustomResource))

    reservations = [read(texts[0])]
    _parse_spec.cache_clear()  # type: ignore[attr-defined]
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        reservations.extend(map(read, texts[1:]))
        _parse_spec.cache_clear()  # type: ignore[attr-defined] - it is bounded
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert len(reservations) == COUNT
    assert taken < MOST_TIMES * sum(map(len, texts[1:]))
