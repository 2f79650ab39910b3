"""What a node says of its processor: the model, and which of its features are on."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Processor:
    """The processor of a node; ``model`` is the name that reporters give it."""

    model: str
    has_hyper_threads: bool = False
    has_turbo: bool = False
