"""Keys with which tests sign plans, and the annotations of signed plans."""

import json
from typing import Any

from koord.api.keys import operators
from koord.kube.plan_keys import PlanKeys

TEST_KEY = b"0123456789abcdef0123456789abcdef"


def make_keys() -> PlanKeys:
    return PlanKeys(TEST_KEY)


def sign_plan(uid: str, plan: str | dict[str, Any]) -> dict[str, str]:
    """Return the annotations with a plan, given as text or as its fields, signed for a pod."""
    text = plan if isinstance(plan, str) else json.dumps(plan)
    return {operators.PLAN: text, operators.PLAN_SIGNATURE: make_keys().sign(uid, text)}
