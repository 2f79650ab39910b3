"""What the aggregation layer asks a server about itself: its groups, versions and resources.

There are no resources: answers are no objects, so nothing is listed, watched or collected by those
who go through all that a cluster serves. Knows no answer.
"""

import json
from typing import Any, Final

from aiohttp import web

GROUP: Final = "answers.operators.koordinator.sh"
VERSION: Final = "v1alpha1"
_VERSION: Final = {"groupVersion": f"{GROUP}/{VERSION}", "version": VERSION}
_GROUP: Final = {"name": GROUP, "versions": [_VERSION], "preferredVersion": _VERSION}
_AGGREGATED: Final = "APIGroupDiscoveryList"
_FORMS: Final = ("v2", "v2beta1")
"""Versions of the aggregated form, the best first."""


def add_discovery(app: web.Application) -> None:
    """Serve it to whoever is let in."""
    app.router.add_get("/apis", _list_groups)
    app.router.add_get(f"/apis/{GROUP}", _show_group)
    app.router.add_get(f"/apis/{GROUP}/{VERSION}", _list_resources)


async def _list_groups(request: web.Request) -> web.Response:
    """Return all groups, in the form that is asked for: in one document, if it may be."""
    accepted = request.headers.get("Accept", "").replace(" ", "")
    for form in _FORMS:
        form_type = f"application/json;g=apidiscovery.k8s.io;v={form};as={_AGGREGATED}"
        if form_type in accepted:
            body = json.dumps(_aggregate(form)).encode()
            return web.Response(body=body, headers={"Content-Type": form_type})
    return _answer("APIGroupList", groups=[_GROUP])


def _aggregate(form: str) -> dict[str, Any]:
    version = {"version": VERSION, "resources": [], "freshness": "Current"}
    group = {"metadata": {"name": GROUP, "creationTimestamp": None}, "versions": [version]}
    return {
        "kind": _AGGREGATED,
        "apiVersion": f"apidiscovery.k8s.io/{form}",
        "metadata": {},
        "items": [group],
    }


async def _show_group(_: web.Request) -> web.Response:
    return _answer("APIGroup", **_GROUP)


async def _list_resources(_: web.Request) -> web.Response:
    return _answer("APIResourceList", groupVersion=f"{GROUP}/{VERSION}", resources=[])


def _answer(kind: str, **fields: object) -> web.Response:
    return web.json_response({"kind": kind, "apiVersion": "v1", **fields})
