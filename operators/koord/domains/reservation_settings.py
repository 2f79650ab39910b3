"""How reservations are used: the section ``reservation`` of the configuration."""

import re
from collections.abc import Iterable
from typing import Annotated

from pydantic import AfterValidator, Field
from typing_extensions import override

from koord.core.reservation.model import IgnoredResources
from koord.domains.section import DNS_SUBDOMAIN, Section

_QUALIFIED = re.compile(
    r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?", re.ASCII
)
_NATIVE = re.compile(r"(.*\.)?kubernetes\.io")


def _check_extended(name: str) -> str:
    if not _QUALIFIED.fullmatch(name) or _NATIVE.fullmatch(name.partition("/")[0]):
        raise ValueError("must be an extended resource, such as example.com/gpu")
    return name


def _check_group(name: str) -> str:
    if not re.fullmatch(DNS_SUBDOMAIN, name) or _NATIVE.fullmatch(name):
        raise ValueError("must be what is before the slash of extended resources")
    return name


_Extended = Annotated[str, Field(max_length=317), AfterValidator(_check_extended)]
_Group = Annotated[str, Field(max_length=253), AfterValidator(_check_group)]


class ReservationSettings(Section):
    """How reservations are used; names and rules are those of Koordinator's Reservation plugin."""

    ignored_resources: Annotated[frozenset[_Extended], Field(max_length=64)] = frozenset()
    """Resources of which pods may use more than is reserved, whatever the policy: something else
    accounts for them."""
    ignored_resource_groups: Annotated[frozenset[_Group], Field(max_length=64)] = frozenset()
    """The same, by what is before the slash of their names."""

    @property
    def ignored(self) -> IgnoredResources:
        return IgnoredResources(self.ignored_resources, self.ignored_resource_groups)

    @override
    def plan_options(self) -> Iterable[object]:
        yield self.ignored
