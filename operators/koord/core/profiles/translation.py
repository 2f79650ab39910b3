"""The expressions that turn CPU and memory of batch and mid pods into what is left over for them.

CPU is counted in milli-CPU there, memory in bytes. Kubernetes takes only CPU and memory for a whole
pod (``spec.resources``): what is asked for beyond the sum of the containers goes to the first one.
Requests that are missing are filled in by the API server from the limits. Whatever a pod asks for,
no expression may fail: a pod on which one does is created as it is.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from koord.core.model.koordinator_class import (
    BANDS,
    TIERS,
    KoordinatorClass,
    KoordinatorQos,
    name_of_tier,
)
from koord.core.model.units import CPU, MEMORY
from koord.core.profiles.cel import join_all, join_any, write_patch, write_text, write_texts

CONTAINERS: Final = ("containers", "initContainers")
KINDS: Final = ("requests", "limits")
RESOURCES: Final = (CPU, MEMORY)
MOST: Final = 10**15
"""No pod has more milli-CPU, nor bytes in what is asked for it as a whole. Sums of a few thousand
such amounts are whole numbers of CEL, and anything beyond would end the expression."""
AGENT_ANNOTATION: Final = "node.koordinator.sh/extended-resource-spec"
"""Pod annotation, JSON: what containers request of batch resources, for the agent of the node."""
AGENT_TEXT: Final = "variables.agentText"
"""The text of that annotation, empty for none."""
_TRANSLATES: Final = "variables.translates"
_FACTORS: Final = {CPU: "1000.0", MEMORY: "1.0"}


def write_tier(class_label: str, qos_label: str, priority: str) -> str:
    """Return the expression of the tier of a pod, empty for none.

    The first two name lists, empty without the label; the third names a number.
    """
    names = write_texts(str(each) for each in KoordinatorClass)
    by_number = "".join(
        f"{priority} >= {values[0]} && {priority} <= {values[-1]} ? {write_text(band)} : "
        for band, values in BANDS.items()
    )
    raw = (
        f"{class_label}.size() > 0 "
        f'? ({class_label}[0] in {names} ? {class_label}[0] : "") : ({by_number}"")'
    )
    is_best_effort = f'({qos_label}.size() > 0 && {qos_label}[0] == "{KoordinatorQos.BE}")'
    mid, batch = KoordinatorClass.MID, KoordinatorClass.BATCH
    return (
        f'[{raw}].map(raw, raw == "{batch}" || raw == "" && {is_best_effort} '
        f'? "{TIERS[batch]}" : raw == "{mid}" ? "{TIERS[mid]}" : "")[0]'
    )


def write_variables(tier: str) -> Mapping[str, str]:
    """Return the variables that the operations use, by name; ``tier`` is an expression."""
    variables: dict[str, str] = {}
    for kind in KINDS:
        for resource in RESOURCES:
            variables[_extra(kind, resource)] = _write_extra(kind, resource)
            variables[_texts(kind, resource)] = _write_texts(kind, resource, tier)
    variables[AGENT_TEXT.partition(".")[2]] = _write_agent_text(tier)
    return variables


def list_operations(tier: str) -> Iterator[str]:
    """Yield expressions of lists of operations."""
    for containers in CONTAINERS:
        for kind in KINDS:
            for resource in RESOURCES:
                yield _remove(containers, kind, resource)
    yield from _list_parents()
    for kind in KINDS:
        for resource in RESOURCES:
            yield _add_texts(kind, resource, tier)
            yield _add_to_starting(kind, resource, tier)
    yield from _list_removals_of_pod()
    opens, closes = write_text('{"containers":{'), write_text("}}")
    value = f"{opens} + {AGENT_TEXT} + {closes}"
    path = write_text("/metadata/annotations/node.koordinator.sh~1extended-resource-spec")
    yield f'({AGENT_TEXT} != "" ? [{write_patch("add", path, value)}] : [])'


# --- amounts --------------------------------------------------------------------------------------


def _extra(kind: str, resource: str) -> str:
    return f"extra{kind.capitalize()}{resource.capitalize()}"


def _texts(kind: str, resource: str) -> str:
    return f"amounts{kind.capitalize()}{resource.capitalize()}"


def _number(amount: str, resource: str) -> str:
    """Return the expression of an amount as a whole number, rounded up."""
    exact = f"quantity(string({amount})).asApproximateFloat() * {_FACTORS[resource]} + 0.999999"
    return f"int([{exact}, {MOST}.0].min())"


def _text(amount: str, resource: str) -> str:
    return f"string({_number(amount, resource)})" if resource == CPU else f"string({amount})"


def _has(holder: str, kind: str, resource: str) -> str:
    amounts = f"{holder}.resources.{kind}"
    return f'has({holder}.resources) && has({amounts}) && "{resource}" in {amounts}'


def _all(containers: str) -> str:
    field = f"object.spec.{containers}"
    return f"(has({field}) ? {field} : [])"


def _write_extra(kind: str, resource: str) -> str:
    """Return how much is asked for the whole pod beyond what its containers ask for."""
    amount = _number(f'c.resources.{kind}["{resource}"]', resource)
    has_amount = _has("c", kind, resource)
    running = f"{_all('containers')}.filter(c, {has_amount}).map(c, {amount})"
    sidecar = 'has(c.restartPolicy) && c.restartPolicy == "Always"'
    starting = f"{_all('initContainers')}.filter(c, {sidecar} && {has_amount}).map(c, {amount})"
    of_pod = _number(f'object.spec.resources.{kind}["{resource}"]', resource)
    beyond = f"{of_pod} - ({running} + {starting}).sum()"
    return f"{_has('object.spec', kind, resource)} ? [{beyond}, 0].max() : 0"


def _write_texts(kind: str, resource: str, tier: str) -> str:
    """Return what each container has of the translated resource then, empty for nothing."""
    amounts, extra = f"c.resources.{kind}", f"variables.{_extra(kind, resource)}"
    amount = f'{amounts}["{resource}"]'
    is_first = f"i == 0 && {extra} > 0"
    name = f'"kubernetes.io/" + {tier} + "-{resource}"'
    own = f"{is_first} ? string({_number(amount, resource)} + {extra}) : {_text(amount, resource)}"
    present = f"has(c.resources) && has({amounts}) && ({name}) in {amounts}"
    other = f'{is_first} ? string({extra}) : {present} ? string({amounts}[{name}]) : ""'
    text = f"{_has('c', kind, resource)} ? ({own}) : ({other})"
    return f'{tier} == "" ? [] : object.spec.containers.transformList(i, c, {text})'


def _write_agent_text(tier: str) -> str:
    """Return what each container has of batch resources, as members of a JSON object."""
    quote, opens, closes = (write_text(text) for text in ('"', '":{', "}"))
    parts = ", ".join(
        f"[{write_text(kind)}, "
        + ", ".join(f"variables.{_texts(kind, of)}[i]" for of in RESOURCES)
        + "]"
        for kind in reversed(KINDS)
    )
    members = ", ".join(
        f'part[{at}] != "" ? {write_text(_opening(of))} + part[{at}] + {quote} : ""'
        for at, of in enumerate(RESOURCES, start=1)
    )
    kinds = (
        f'[{parts}].filter(part, part[1] != "" || part[2] != "").map(part, {quote} + part[0] + '
        f'{opens} + [{members}].filter(text, text != "").join(",") + {closes})'
    )
    named = f'{quote} + c.name + {opens} + {kinds}.join(",") + {closes}'
    uses = join_any(f'variables.{_texts(kind, of)}[i] != ""' for kind in KINDS for of in RESOURCES)
    batch = f'{_TRANSLATES} && {tier} == "{TIERS[KoordinatorClass.BATCH]}"'
    listed = f'object.spec.containers.transformList(i, c, {uses}, {named}).join(",")'
    return f'{batch} ? {listed} : ""'


def _opening(resource: str) -> str:
    return f'"{name_of_tier(KoordinatorClass.BATCH, resource)}":"'


# --- operations -----------------------------------------------------------------------------------


def _place(containers: str, kind: str) -> str:
    return f'"/spec/{containers}/" + string(i) + "/resources/{kind}/'


def _remove(containers: str, kind: str, resource: str) -> str:
    removed = write_patch("remove", f'{_place(containers, kind)}{resource}"')
    return f"{_all(containers)}.transformList(i, c, {_has('c', kind, resource)}, {removed})"


def _list_parents() -> Iterator[str]:
    """Yield what the first container lacks above amounts that it gets for the whole pod."""
    first = "object.spec.containers[0]"
    gets = {
        kind: "(" + join_any(f"variables.{_extra(kind, of)} > 0" for of in RESOURCES) + ")"
        for kind in KINDS
    }
    above = write_patch("add", write_text("/spec/containers/0/resources"), "{}")
    yield f"({join_any(gets.values())}) && !has({first}.resources) ? [{above}] : []"
    for kind in KINDS:
        amounts = f"{first}.resources.{kind}"
        lacks = f"(!has({first}.resources) || !has({amounts}) || {amounts}.size() == 0)"
        added = write_patch("add", write_text(f"/spec/containers/0/resources/{kind}"), "{}")
        yield f"{join_all((gets[kind], lacks))} ? [{added}] : []"


def _add_texts(kind: str, resource: str, tier: str) -> str:
    path = f'{_place("containers", kind)}kubernetes.io~1" + {tier} + "-{resource}"'
    added = write_patch("add", path, "text")
    return f'variables.{_texts(kind, resource)}.transformList(i, text, text != "", {added})'


def _add_to_starting(kind: str, resource: str, tier: str) -> str:
    path = f'{_place("initContainers", kind)}kubernetes.io~1" + {tier} + "-{resource}"'
    added = write_patch("add", path, _text(f'c.resources.{kind}["{resource}"]', resource))
    has_amount = _has("c", kind, resource)
    return f"{_all('initContainers')}.transformList(i, c, {has_amount}, {added})"


def _list_removals_of_pod() -> Iterator[str]:
    """Yield what takes CPU and memory from the whole pod, and all if there is nothing else."""
    whole, names = "object.spec.resources", write_texts(RESOURCES)
    only = join_all(
        f"(!has({whole}.{kind}) || {whole}.{kind}.all(name, name in {names}))" for kind in KINDS
    )
    removed = write_patch("remove", write_text("/spec/resources"))
    yield f"has({whole}) && {only} ? [{removed}] : []"
    for kind in KINDS:
        for resource in RESOURCES:
            part = write_patch("remove", write_text(f"/spec/resources/{kind}/{resource}"))
            yield f"{_has('object.spec', kind, resource)} && !({only}) ? [{part}] : []"
