"""Says what is wrong with the ConfigMap ``slo-controller-config``: a warning event per key.

The ConfigMap has no status. What is in force is kept elsewhere.
"""

import logging
from dataclasses import dataclass, field
from typing import Final

from koord.api.slo_config import NAME, NAMESPACE
from koord.controllers.coalescing import Pause
from koord.controllers.status_controller import ChangedInputs
from koord.core.engine.state import ClusterState
from koord.core.model.text import MAX_TEXT, cut
from koord.core.slo_config.plugin import SloConfigs
from koord.kube.events import EventRecorder, EventType
from koord.kube.objects import ObjectRef

log = logging.getLogger(__name__)

INVALID: Final = "ConfigInvalid"
_ACTION: Final = "Reading"
_PAUSE: Final = Pause(0.5, 1.5)


@dataclass(slots=True)
class SloConfigReports:
    """Looks at one object, whose key is its name."""

    state: ClusterState
    events: EventRecorder
    _inputs: ChangedInputs[str] = field(default_factory=ChangedInputs)
    _said: dict[str, str] = field(default_factory=dict)
    """Key of the ConfigMap -> the text of its last event, while it is invalid."""

    def changed(self) -> list[str]:
        config = self.state.plugin(SloConfigs).config
        return self._inputs.compare((NAME,), lambda _: config)

    def pause_for(self, _name: str) -> Pause:
        return _PAUSE

    async def update(self, _name: str) -> None:
        config = self.state.plugin(SloConfigs).config
        problems = {} if config is None else config.problems
        for key in self._said.keys() - problems.keys():
            del self._said[key]
            log.info("A key of a ConfigMap is valid again", extra={"object": NAME, "key": key})
        if config is None:
            return
        for key, texts in problems.items():
            text = cut(f"{'; '.join(texts)}. The last valid settings stay in force", MAX_TEXT)
            if self._said.get(key) == text:
                continue
            self._said[key] = text
            log.warning("A ConfigMap is invalid", extra={"object": NAME, "problem": text})
            ref = ObjectRef("v1", "ConfigMap", "configmaps", NAME, config.uid, NAMESPACE)
            self.events.forget(ref, _ACTION)
            self.events.record(ref, EventType.WARNING, action=_ACTION, reason=INVALID, note=text)
