"""The policy of the overlay lets the operators write what they write to Jobs, and no other key."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from tools.policies import list_results

from koord.reference.entries import list_entries

POLICY = Path(__file__).parents[2] / "manifests/overlays/suspend/policy.yaml"


def test_keys_of_jobs_in_the_policy_are_all_that_the_operators_write() -> None:
    policy = next(yaml.safe_load_all(POLICY.read_text(encoding="utf-8")))
    (results,) = (v["expression"] for v in policy["spec"]["variables"] if v["name"] == "results")
    written = {result.key for result in list_results(list_entries()) if "Job" in result.on}
    assert set(re.findall("'([^']+)'", results)) == written
    assert len(written) == 3
