"""The ConfigMap ``slo-controller-config`` from the wire to the core.

While the text of a key is invalid, its last valid one stays in force, until the key is removed or
emptied. A process that finds an invalid text at its start has nothing for that key.
"""

from collections.abc import Sequence
from typing import Any

from koord.api.parse import InvalidObject
from koord.api.slo_config import SloConfigKey, find_misspelled
from koord.core.slo_config.plugin import SloConfig
from koord.kube.wire import WireConfigMap

AnyKey = SloConfigKey[Any]


class SloConfigTranslator:
    """Translates the ConfigMap, and remembers the last valid value of each key."""

    def __init__(self, keys: Sequence[AnyKey]) -> None:
        self._keys = keys
        self._values: dict[type, object] = {}

    def translate(self, wire: WireConfigMap) -> SloConfig:
        data, problems = wire.data or {}, dict[str, tuple[str, ...]]()
        unknown: dict[str, tuple[str, ...]] = {
            name: (str(each),) for name, each in find_misspelled(data, self._keys)
        }
        for key in self._keys:
            text = data.get(key.name, "")
            if not text.strip():
                self._values.pop(key.of, None)
                continue
            value = key.read(text)
            if isinstance(value, InvalidObject):
                problems[key.name] = tuple(map(str, value.problems))
            else:
                self._values[key.of] = key.make(value)
                fields = tuple(map(str, key.find_unknown(text)))
                if fields:
                    unknown[key.name] = fields
        return SloConfig(wire.metadata.uid, dict(self._values), problems, unknown)

    def forget(self, _: SloConfig) -> None:
        self._values.clear()
