"""How many GPUs a request takes, as people count them."""

from koord.core.model.device_names import CARDS, GPU_CORE, KOORD_GPU, WHOLE
from koord.core.model.units import Amounts


def count_gpus(requests: Amounts) -> int:
    """Return how many GPUs a request takes, in whole ones: a share counts as one."""
    cards = sum(requests.get(name, 0) for name in CARDS)
    shares = max(requests.get(KOORD_GPU, 0), requests.get(GPU_CORE, 0))
    return cards or -(-shares // WHOLE)
