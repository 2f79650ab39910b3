"""Who answers ScheduleExplanations, where the configuration asks for it."""

from typing import TYPE_CHECKING

from koord.controllers.schedule_explanations import ExplanationAnswers
from koord.domains.explanation_settings import ExplanationSettings
from koord.kube.schedule_explanations import ScheduleExplanations
from koord.operators.names import PLACEMENT

if TYPE_CHECKING:
    from koord.runtime.wiring import Parts


def start(parts: "Parts") -> None:
    placement = parts.placement
    is_on = parts.settings.of(ExplanationSettings).enabled
    if PLACEMENT not in parts.operators or placement is None or not is_on:
        return
    api = ScheduleExplanations(parts.client)
    answers = ExplanationAnswers(api, parts.reader.state, placement.is_synced, placement.clock)
    parts.background.append(answers.run)
