"""The operator ``elasticquotaprofile``: writes the root quotas of profiles, and their status."""

from typing import TYPE_CHECKING, Final

from koord.api.quotaprofile import ElasticQuotaProfile
from koord.controllers.quota_profile import ProfileStatusPolicy
from koord.domains.placement import NODES
from koord.domains.quota import PROFILES, QUOTAS
from koord.kube.objects import ref_of_profile
from koord.kube.quota_objects import RootQuotaWriter
from koord.kube.status import Former
from koord.kube.write_check import Write
from koord.operators.names import PROFILE
from koord.operators.operator import Operator

if TYPE_CHECKING:
    from koord.runtime.wiring import Parts


def start(parts: "Parts") -> None:
    author = parts.make_author(
        OPERATOR,
        parts.reader.translator(PROFILES),
        lambda meta: f"{meta['namespace']}/{meta['name']}",
        ref_of_profile,
        former=(Former("koord-elasticquotaprofile-tree"),),
    )
    policy = ProfileStatusPolicy(
        state=parts.reader.state,
        author=author,
        quotas=RootQuotaWriter(parts.client),
        meta_of=parts.reader.translator(QUOTAS).meta_of,
    )
    parts.handle(author, parts.keep_status(policy, author))


OPERATOR: Final = Operator(
    PROFILE,
    ElasticQuotaProfile,
    start,
    reads=(NODES, QUOTAS, PROFILES),
    writes=frozenset(
        {
            Write("quota.koordinator.sh", "elasticquotaprofiles/status", "patch"),
            Write("scheduling.sigs.k8s.io", "elasticquotas", "create"),
            Write("scheduling.sigs.k8s.io", "elasticquotas", "patch"),
            Write("events.k8s.io", "events", "create"),
        }
    ),
)
