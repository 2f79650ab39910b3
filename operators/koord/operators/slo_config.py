"""Has a process read the ConfigMap ``slo-controller-config``, for operators that need it."""

from typing import TYPE_CHECKING

from koord.controllers.slo_config import SloConfigReports
from koord.domains.slo_config import SLO_CONFIGS

if TYPE_CHECKING:
    from koord.runtime.wiring import Parts


def read_slo_config(parts: "Parts") -> None:
    """Read it from now on, and say what is wrong with it; once, whoever asks for it."""
    if SLO_CONFIGS.name in parts.reader.reflectors:
        return
    parts.reader.add(SLO_CONFIGS)
    parts.keep_status(SloConfigReports(parts.reader.state, parts.events))
