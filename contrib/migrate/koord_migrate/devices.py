"""Parts of GPUs: annotations of KAI and resources of Volcano, as our resources."""

from typing import Any, Final

from koord.api.workloads import Document
from koord_migrate.requested_settings import RequestedSettings, Say, containers_of

_CORE: Final = "koordinator.sh/gpu-core"
_RATIO: Final = "koordinator.sh/gpu-memory-ratio"
_MEMORY: Final = "koordinator.sh/gpu-memory"
_SHARED: Final = "koordinator.sh/gpu.shared"
_WHOLE: Final = ("nvidia.com/gpu", "amd.com/gpu")
_VGPU: Final = "volcano.sh/vgpu-"


def share_gpus(template: Document, settings: RequestedSettings, say: Say) -> bool:
    """Rewrite what the pod asks for; return whether anything changed."""
    changed = False
    if settings.gpu_fraction is not None:
        container = next(containers_of(template), None)
        if container is None or not 0 < settings.gpu_fraction <= 1:
            say(
                "gpu-fraction",
                f"{settings.gpu_fraction} is no part of a GPU: write a number between 0 and 1",
            )
        else:
            percent = round(settings.gpu_fraction * 100)
            _limit(container, _parts(settings.gpu_count, {_CORE: percent, _RATIO: percent}))
            changed = True
    for container in containers_of(template):
        changed |= _translate_vgpu(container, say)
    return changed


def _parts(count: int, of_one: dict[str, int]) -> dict[str, str]:
    amounts = {key: str(value * count) for key, value in of_one.items()}
    return amounts | ({_SHARED: str(count)} if count > 1 else {})


def _limit(container: Document, amounts: dict[str, str]) -> None:
    resources = container.setdefault("resources", {})
    for name in ("requests", "limits"):
        kept = {k: v for k, v in (resources.get(name) or {}).items() if k not in _WHOLE}
        resources[name] = kept
    resources["limits"] |= amounts
    if not resources["requests"]:
        del resources["requests"]


def _translate_vgpu(container: Document, say: Say) -> bool:
    resources = container.get("resources") or {}
    requested: dict[str, Any] = {}
    for amounts in resources.values():
        if isinstance(amounts, dict):
            names = [key for key in amounts if str(key).startswith(_VGPU)]
            requested |= {key.removeprefix(_VGPU): amounts.pop(key) for key in names}
    if not requested:
        return False
    try:
        count = int(requested.get("number", 1))
        core = int(requested["cores"])
        amounts = _parts(count, {_CORE: core})
        if "memory" in requested:
            amounts[_MEMORY] = f"{int(requested['memory']) * count}Mi"
        else:
            amounts[_RATIO] = str(int(requested["memory-percentage"]) * count)
    except (KeyError, ValueError):
        say(f"{_VGPU}…", f"say {_CORE} and {_MEMORY}: not all of them are in {requested}")
        return True
    _limit(container, amounts)
    return True
