"""ClusterColocationProfiles."""

from typing import Final

from koord.api.clustercolocationprofile import ClusterColocationProfile
from koord.core.profiles.plugin import ColocationProfiles
from koord.domains.planning import Planning
from koord.kube.errors import Forbidden, NotFound
from koord.kube.kind import of_model, of_plugin
from koord.kube.translate.profiles import ColocationProfileTranslator

COLOCATION_PROFILES: Final = of_model(
    ClusterColocationProfile,
    lambda _: ColocationProfileTranslator(),
    of_plugin(ColocationProfiles),
    ColocationProfiles.upsert,
    ColocationProfiles.remove,
    # Without the CRD, or with roles of earlier releases, there are none.
    absent_on=(NotFound, Forbidden),
)

PLANNING: Final = Planning(make_plugins=lambda _: (ColocationProfiles(),))
