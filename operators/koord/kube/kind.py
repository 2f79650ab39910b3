"""What a domain reads: kinds of objects (where they are listed, how decoded, who keeps them); pods.

A value of ``Kind`` says it all: how objects are translated, how they are applied to the
``ClusterState``, and what it means that the kind cannot be read. The kinds themselves stand in
``koord.domains``, each with its domain. Reflectors, the reader of the command line, the check for
missing CRDs and the test of the RBAC roles go over them; nothing is known here of any of them.

A ``PodReader`` says what a domain reads of pods beyond their specs: hints of their owners, records
of allocations. The translator of pods asks every reader and knows none of them. A reader serves all
pods and keeps nothing; it must not know how pods are listed or written.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, Protocol, TypeAlias, TypedDict, TypeVar

from typing_extensions import Unpack

from koord.api.gang import UPSTREAM_DEFAULTS, GangDefaults
from koord.api.keys import operators
from koord.api.resource import Resource
from koord.core.engine.plugin import Plugin
from koord.core.engine.state import ClusterState
from koord.core.gang.cache import GangCache
from koord.core.model.pods import Allocation, PodShape
from koord.kube.errors import KubeError
from koord.kube.plan_keys import PlanVerifier
from koord.kube.reflector import Absence, Source
from koord.kube.store import HasMeta
from koord.kube.wire import WireCustomResource, WirePod

Counted: TypeAlias = tuple[tuple[str, int], ...]
"""Amounts by resource, sorted."""
_NOTHING: Final[Mapping[str, str]] = {}


class PodReader:
    """The reader of one domain. Every method has a default that reads nothing."""

    name: ClassVar[str]
    """The plugin that the hints are for."""
    record: ClassVar[str] = ""
    """The annotation that the operators record an allocation in; empty for none."""

    def concerns(self, shape: PodShape) -> bool:  # noqa: ARG002 - for overriding
        """Whether hints matter for pods of a shape; asked once per shape."""
        return True

    def read_pod(self, wire: WirePod, shape: PodShape) -> Hashable | None:  # noqa: ARG002 - the same
        """Return what a pod says to the plugin; most readers only look at :meth:`read_hints`."""
        meta = wire.metadata
        annotations, labels = meta.annotations or _NOTHING, meta.labels or _NOTHING
        return self.read_hints(annotations, labels, wire.spec.priority or 0)

    def read_hints(
        self,
        annotations: Mapping[str, str],  # noqa: ARG002 - for overriding
        labels: Mapping[str, str],  # noqa: ARG002 - the same
        priority: int,  # noqa: ARG002 - the same
    ) -> Hashable | None:
        """Return what the owner of a pod says to the plugin, problems included; None: nothing."""
        return None

    def read_record(self, uid: str, text: str, hints: Hashable | None) -> Allocation:
        """Return the allocation that a record of a pod says. Raises a MALFORMED error."""
        raise NotImplementedError

    def replace_lost(self, uid: str, shape: PodShape) -> Allocation | None:  # noqa: ARG002 - the same
        """Return what counts for a pod whose record was removed or changed; None: nothing."""
        return None

    def count(
        self,
        shape: PodShape,  # noqa: ARG002 - the same
        hints: Hashable | None,  # noqa: ARG002 - the same
        allocations: Sequence[Allocation],  # noqa: ARG002 - the same
    ) -> Counted:
        """Return what quotas count for a pod if it is more than it requests; () if it is not."""
        return ()


W = TypeVar("W", bound=HasMeta)
W_contra = TypeVar("W_contra", bound=HasMeta, contravariant=True)
T = TypeVar("T")
P = TypeVar("P", bound=Plugin)


class Translator(Protocol[W_contra, T]):
    """Makes values of the core from decoded objects."""

    def translate(self, wire: W_contra, /) -> T:
        """Return the core's view of an object. Raises ValueError if the object is malformed."""

    def forget(self, value: T, /) -> None:
        """Drop what is remembered of a deleted object."""


R = TypeVar("R", bound=Translator[Any, Any])


@dataclass(frozen=True, slots=True)
class Stateless(Generic[W, T]):
    """A translator that remembers nothing."""

    translate: Callable[[W], T]

    def forget(self, value: T, /) -> None:
        pass


@dataclass(frozen=True, slots=True)
class TranslatorOptions:
    """The settings that translation depends on."""

    scheduler_name: str = operators.SCHEDULER_NAME
    gang_defaults: GangDefaults = UPSTREAM_DEFAULTS
    plans: PlanVerifier | None = None
    """Tells our plans from others; None: no plan counts."""
    pod_readers: tuple[PodReader, ...] = ()
    """What domains read of pods."""


@dataclass(frozen=True, eq=False)
class Kind(Generic[W, T, R]):
    """One kind of object: ``W`` as decoded, ``T`` as translated, ``R`` the translator's type."""

    api_version: str
    """``v1`` or ``group/version``; the one to read, if there are others."""
    plural: str
    wire: type[W]
    make_translator: Callable[[TranslatorOptions], R]
    owner: Callable[[ClusterState], Any]
    """Returns what keeps the objects of this kind: a plugin, mostly."""
    upsert_in: Callable[[Any, T], None]
    remove_from: Callable[[Any, T], None]
    is_namespaced: bool = True
    is_required: bool = False
    """Whether an operator that reads this kind refuses to start where it is not served."""
    shares_plural: bool = False
    """Whether another kind has its plural, so that it is called by its full name."""
    is_useful_in_part: bool = False
    """Whether the objects of one namespace help a user who may not list all namespaces."""
    is_metadata_only: bool = False
    """Whether nothing is read of the objects but their metadata."""
    only: str = ""
    """The one object that is read, as ``namespace/name``; empty: all are. RBAC can grant that."""
    other_versions: tuple[str, ...] = ()
    """Versions of the same objects to read, in this order, where the first is not served."""
    absent_on: tuple[type[KubeError], ...] = ()
    """Errors of a list that mean: there are no objects. All others keep the copy from syncing."""
    kept_seconds: float = 0.0
    """How long such errors may come before that is believed of objects that were there."""
    may_lack_at_start: bool = False
    """Whether the first such error is believed at once if nothing was read before."""
    note_absence: Callable[[ClusterState, Absence], None] | None = None

    @property
    def group(self) -> str:
        """The API group, empty for the core group."""
        return self.api_version.rpartition("/")[0]

    @property
    def resource(self) -> str:
        """``plural.group``, as RBAC and ``kubectl`` name it; just the plural in the core group."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def name(self) -> str:
        """What the kind is called in metrics and logs: the plural unless two kinds share it."""
        return self.resource if self.shares_plural else self.plural

    @property
    def path(self) -> str:
        """The path of the collection over all namespaces."""
        return self._path_of(self.api_version)

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of all versions that may be read, the first that is served counts."""
        return tuple(map(self._path_of, (self.api_version, *self.other_versions)))

    def _path_of(self, version: str) -> str:
        namespace = f"namespaces/{self.only.partition('/')[0]}/" if self.only else ""
        return f"{'/apis' if self.group else '/api'}/{version}/{namespace}{self.plural}"

    def __str__(self) -> str:
        return self.resource

    def upsert(self, state: ClusterState, value: T) -> None:
        """Apply an object as it is now."""
        self.upsert_in(self.owner(state), value)

    def remove(self, state: ClusterState, value: T) -> None:
        """Apply that an object is gone."""
        self.remove_from(self.owner(state), value)

    def source(
        self, translator: Translator[W, T], reject: Callable[[str, str], None]
    ) -> Source[W, T]:
        """Return the source of a reflector; ``reject`` gets ``namespace/name`` and the problem."""
        return Source(
            self.path,
            self.wire,
            translator.translate,
            translator.forget,
            reject,
            {"fieldSelector": f"metadata.name={self.only.partition('/')[2]}"} if self.only else {},
            other_paths=self.paths[1:],
            is_metadata_only=self.is_metadata_only,
            absent_on=self.absent_on,
            kept_seconds=self.kept_seconds,
            may_lack_at_start=self.may_lack_at_start,
        )


class KindOptions(TypedDict, total=False):
    """Fields of a ``Kind`` that few kinds set."""

    is_required: bool
    is_useful_in_part: bool
    absent_on: tuple[type[KubeError], ...]
    kept_seconds: float
    note_absence: Callable[[ClusterState, Absence], None]


def of_model(
    model: type[Resource],
    make_translator: Callable[[TranslatorOptions], R],
    owner: Callable[[ClusterState], Any],
    upsert_in: Callable[[Any, T], None],
    remove_from: Callable[[Any, T], None],
    **options: Unpack[KindOptions],
) -> Kind[WireCustomResource, T, R]:
    """Return the kind of a custom resource, which has the names of its model."""
    names = model.names
    return Kind(
        names.api_version,
        names.plural,
        WireCustomResource,
        make_translator,
        owner,
        upsert_in,
        remove_from,
        names.namespaced,
        **options,
    )


def of_plugin(kind: type[P]) -> Callable[[ClusterState], P]:
    return lambda state: state.plugin(kind)


def of_state(state: ClusterState) -> ClusterState:
    return state


def of_gangs(state: ClusterState) -> GangCache:
    return state.gangs


AnyKind: TypeAlias = Kind[Any, Any, Any]
