"""What the cards of this node do now: memory, load, temperature, power, errors.

Reads through the session of the library that is open already. Each card is read in a thread of its
own, and has a deadline: a call into a driver may hang for ever, and one such card must not hide the
others. What a card does not support has no value, which is not 0.
"""

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from koord.agent.nvidia import Card, Nvidia

DEADLINE_SECONDS: Final = 0.25

Values: TypeAlias = Mapping[str, int]
"""Names of figures, see ``FIGURES``, and their values."""


class _Question(NamedTuple):
    """A call to the library, and what its answer says."""

    names: tuple[str, ...]
    ask: Callable[[Any, Any], tuple[int, ...]]


def _read_memory(nvml: Any, handle: Any) -> tuple[int, ...]:
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    return memory.used, memory.total


def _read_load(nvml: Any, handle: Any) -> tuple[int, ...]:
    load = nvml.nvmlDeviceGetUtilizationRates(handle)
    return load.gpu, load.memory


def _read_temperature(nvml: Any, handle: Any) -> tuple[int, ...]:
    return (nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),)


def _read_power(nvml: Any, handle: Any) -> tuple[int, ...]:
    return (nvml.nvmlDeviceGetPowerUsage(handle),)


def _read_ecc(nvml: Any, handle: Any) -> tuple[int, ...]:
    kind = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
    return (nvml.nvmlDeviceGetTotalEccErrors(handle, kind, nvml.NVML_VOLATILE_ECC),)


MEMORY_USED: Final = "memory_used_bytes"
UTILIZATION: Final = "utilization_percent"
ECC_ERRORS: Final = "ecc_errors"
_QUESTIONS: Final = (
    _Question((MEMORY_USED, "memory_total_bytes"), _read_memory),
    _Question((UTILIZATION, "memory_controller_percent"), _read_load),
    _Question(("temperature_celsius",), _read_temperature),
    _Question(("power_milliwatts",), _read_power),
    _Question((ECC_ERRORS,), _read_ecc),
)
FIGURES: Final = tuple(name for question in _QUESTIONS for name in question.names)


class CardSample(NamedTuple):
    """A card, and what is known of it; None: it did not answer in time."""

    card: Card
    values: Values | None


@dataclass(slots=True)
class GpuSampler:
    """Reads all cards of the node; used by one caller at a time."""

    source: Nvidia
    deadline: float = DEADLINE_SECONDS
    _hanging: dict[str, threading.Thread] = field(default_factory=dict)
    """Cards (UUIDs) whose last reading has not ended."""

    def read(self) -> list[CardSample]:
        """Return a sample of each card, after the deadline at the latest."""
        nvml, cards = self.source.library, self.source.cards
        if nvml is None:
            return []
        done: dict[str, Values] = {}
        self._hanging = {
            uuid: thread for uuid, thread in self._hanging.items() if thread.is_alive()
        }
        started = {
            card.uuid: threading.Thread(target=_read_card, args=(nvml, card, done), daemon=True)
            for card in cards
            if card.uuid not in self._hanging
        }
        end = time.monotonic() + self.deadline
        for thread in started.values():
            thread.start()
        for thread in started.values():
            thread.join(max(0.0, end - time.monotonic()))
        self._hanging |= started
        return [CardSample(card, done.get(card.uuid)) for card in cards]


def _read_card(nvml: Any, card: Card, done: dict[str, Values]) -> None:
    values: dict[str, int] = {}
    for question in _QUESTIONS:
        with suppress(nvml.NVMLError):
            answers = (int(answer) for answer in question.ask(nvml, card.handle))
            values |= dict(zip(question.names, answers, strict=True))
    done[card.uuid] = values
