"""How the GPU requests of one container are normalised and checked when a pod is created.

Koordinator does this in an admission webhook. Here both are functions, so that they can run where
no webhook has. Limits are treated like requests, from which they must not differ.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from koord.core.model.device_names import (
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_SHARED,
    KOORD_GPU,
    NPU_CORE,
    WHOLE,
    rename,
)
from koord.core.model.units import Amounts

_FIELD: Final = "pod.spec.containers[*].resources.requests"
_PARTS: Final = (GPU_CORE, GPU_MEMORY_RATIO)
_GPU_NAMES: Final = frozenset({KOORD_GPU, GPU_SHARED, GPU_MEMORY, *_PARTS})


def normalise(amounts: Amounts, *, is_strict: bool = False) -> dict[str, int]:
    """Replace ``gpu`` by its two parts, and add on how many GPUs the request is spread.

    With ``is_strict`` exactly as Koordinator: also where the result is not valid (whole NPUs), or
    where it hides that the request contradicts itself (``gpu`` beside one of its parts).
    """
    made = dict(rename(amounts))
    if _GPU_NAMES.isdisjoint(made) or (NPU_CORE in made and not is_strict):
        return made
    if KOORD_GPU in made and (is_strict or made.keys().isdisjoint(_PARTS)):
        made |= dict.fromkeys(_PARTS, made.pop(KOORD_GPU))
    if GPU_SHARED not in made and KOORD_GPU not in made:
        size = made.get(GPU_MEMORY_RATIO, made.get(GPU_CORE, 0))
        is_whole = size > WHOLE and size % WHOLE == 0
        made[GPU_SHARED] = size // WHOLE if is_whole else 1
    return made


@dataclass(frozen=True, slots=True)
class RequestProblem:
    """What is wrong with the GPU requests of a container.

    ``amount`` is the invalid value; None if the combination of resources is forbidden.
    """

    message: str
    amount: int | None = None

    def describe(self) -> str:
        """Return the message of Koordinator's webhook."""
        kind = "Forbidden" if self.amount is None else f'Invalid value: "{self.amount}"'
        return f"{_FIELD}: {kind}: {self.message}"


def describe_problems(problems: Iterable[RequestProblem]) -> str:
    """Return all faults as the API server reports them; empty if there are none."""
    texts = list(dict.fromkeys(problem.describe() for problem in problems))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]" if texts else ""


def find_problems(amounts: Amounts) -> Iterator[RequestProblem]:
    """Yield what is wrong with the GPU requests of a container."""
    given = rename(amounts)
    if KOORD_GPU in given and GPU_SHARED in given:
        yield RequestProblem("declare GPU and GPU share at same time")
    elif KOORD_GPU in given:
        yield from _check_gpu(given[KOORD_GPU])
    elif GPU_SHARED in given:
        yield from _check_shared(given)


def _check_gpu(gpu: int) -> Iterator[RequestProblem]:
    if not gpu:
        yield RequestProblem("the requested GPU must be greater than zero", gpu)
    if gpu > WHOLE and gpu % WHOLE:
        yield RequestProblem("the requested GPU must be percentage of 100", gpu)


def _check_shared(given: Amounts) -> Iterator[RequestProblem]:
    shared = given[GPU_SHARED]
    if not shared:
        yield RequestProblem("the requested GPU must be greater than zero", shared)
    if given.get(NPU_CORE):
        return
    memory, ratio = given.get(GPU_MEMORY, 0), given.get(GPU_MEMORY_RATIO, 0)
    if not memory and not ratio:
        yield RequestProblem("GPU memory and GPU memory ratio all is zero")
    if memory and ratio:
        yield RequestProblem("declare GPU memory and GPU memory ratio at same time")
    for name, word in ((GPU_CORE, "gpuCore"), (GPU_MEMORY_RATIO, "gpuMemoryRatio")):
        amount = given.get(name, 0)
        if shared and amount % shared:
            yield RequestProblem(f"the requested {word} must multiple of shared", amount)
