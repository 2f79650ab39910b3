"""What users read about profiles of quotas. A part of ``messages``, which see."""

from collections.abc import Mapping
from typing import Final

from koord.core.quota.profile import Overlap, ProfileVerdict, QuotaProfile

_SHOWN: Final = 3

_VERDICTS: Final[Mapping[ProfileVerdict, str]] = {
    ProfileVerdict.MADE: "ElasticQuota {quota} shares out what the nodes offer",
    ProfileVerdict.INVALID: "{problems}; until that is corrected, {kept}",
    ProfileVerdict.NOT_OURS: "spec.quotaName: {name}: ElasticQuota {quota} is there and {maker}; "
    "choose another name, delete that quota, or hand it over with the label "
    "quota.scheduling.koordinator.sh/profile={profile}",
    ProfileVerdict.NAME_TAKEN: "spec.quotaName: {name}: an ElasticQuota in namespace {other} is "
    "called so, and names are unique in the cluster; choose another",
    ProfileVerdict.CONTESTED: "spec.quotaName: {name}: the older ElasticQuotaProfile {other} makes "
    "a quota of that name; choose another",
}


def write_verdict(
    profile: QuotaProfile,
    verdict: ProfileVerdict,
    other: str,
    nodes: int,
    *,
    is_kept: bool = False,
) -> str:
    """Write whether the quota of a profile is made, or what stands against it.

    ``is_kept`` tells of settings that cannot be used if others are in force in their place.
    """
    text = _VERDICTS[verdict].format(
        name=profile.quota_name,
        quota=f"{profile.namespace}/{profile.quota_name}",
        profile=profile.name,
        other=other,
        maker=f"was made by profile {other}" if other else "was not made by a profile",
        problems="; ".join(profile.problems),
        kept="what was valid last is in force" if is_kept else "no quota is made or changed",
    )
    if verdict is ProfileVerdict.MADE and not nodes:
        return f"{text}; spec.nodeSelector selects no node, so that is nothing"
    return text


def write_overlap(overlap: Overlap) -> str:
    """Write which nodes count in several trees."""
    if not overlap.nodes:
        return "no other profile selects its nodes"
    shown = ", ".join(overlap.nodes[:_SHOWN])
    more = f" and {len(overlap.nodes) - _SHOWN} more" if len(overlap.nodes) > _SHOWN else ""
    others = ", ".join(overlap.profiles[:_SHOWN])
    return (
        f"{len(overlap.nodes)} of its nodes ({shown}{more}) are selected by {others}, too, and "
        "shared out twice; narrow spec.nodeSelector of one"
    )
