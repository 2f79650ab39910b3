"""Says what is wrong with the ConfigMap ``slo-controller-config``: warning events, by key.

The ConfigMap has no status. What is in force is kept elsewhere.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from koord.api.slo_config import NAME, NAMESPACE
from koord.controllers.coalescing import Pause
from koord.controllers.status_controller import ChangedInputs
from koord.core.engine.state import ClusterState
from koord.core.model.text import MAX_TEXT, cut
from koord.core.slo_config.plugin import SloConfig, SloConfigs
from koord.kube.events import EventRecorder, EventType
from koord.kube.objects import ObjectRef

log = logging.getLogger(__name__)

INVALID: Final = "ConfigInvalid"
IGNORED: Final = "ConfigFieldIgnored"
_ACTIONS: Final = {INVALID: "Reading", IGNORED: "Ignoring"}
_ENDS: Final = {INVALID: "The last valid settings stay in force", IGNORED: "It has no effect"}
_PAUSE: Final = Pause(0.5, 1.5)


@dataclass(slots=True)
class SloConfigReports:
    """Looks at one object, whose key is its name."""

    state: ClusterState
    events: EventRecorder
    _inputs: ChangedInputs[str] = field(default_factory=ChangedInputs)
    _said: dict[tuple[str, str], str] = field(default_factory=dict)
    """Reason, and key of the ConfigMap -> the text of its last event, while it holds."""

    def changed(self) -> list[str]:
        config = self.state.plugin(SloConfigs).config
        return self._inputs.compare((NAME,), lambda _: config)

    def pause_for(self, _name: str) -> Pause:
        return _PAUSE

    async def update(self, _name: str) -> None:
        config = self.state.plugin(SloConfigs).config
        texts = {} if config is None else dict(_texts_of(config))
        uid = "" if config is None else config.uid
        for reason, key in self._said.keys() - texts.keys():
            del self._said[reason, key]
            log.info("A key of a ConfigMap is valid again", extra={"object": NAME, "key": key})
        for (reason, key), text in texts.items():
            if self._said.get((reason, key)) == text:
                continue
            self._said[reason, key] = text
            log.warning("A ConfigMap is invalid", extra={"object": NAME, "problem": text})
            ref = ObjectRef("v1", "ConfigMap", "configmaps", NAME, uid, NAMESPACE)
            action = _ACTIONS[reason]
            self.events.forget(ref, action)
            self.events.record(ref, EventType.WARNING, action=action, reason=reason, note=text)


def _texts_of(config: SloConfig) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield what is to be said, by reason and key."""
    for reason, by_key in ((INVALID, config.problems), (IGNORED, config.unknown)):
        for key, texts in by_key.items():
            joined = "; ".join(texts).removesuffix("?")
            yield (reason, key), cut(f"{joined}. {_ENDS[reason]}", MAX_TEXT)
