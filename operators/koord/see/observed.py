"""What is seen of requests: one line of the log for each, and metrics.

Neither has tokens, nor what was asked about: the pattern of a path stands for all paths like it.
"""

import logging
from typing import Final

from aiohttp import web
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.registry import Collector

from koord.see.app import ASKER, METRICS, PROBES
from koord.see.token_access import TokenAccess

_BUCKETS: Final = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
log = logging.getLogger(__name__)


class Observed:
    """The log and the metrics of the requests of one process."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._requests = Counter(
            "koord_see_requests_total",
            "Requests for answers and for the page, by route and status of HTTP.",
            ["route", "code"],
            registry=self._registry,
        )
        self._seconds = Histogram(
            "koord_see_request_seconds",
            "How long requests took, without streams.",
            ["route"],
            registry=self._registry,
            buckets=_BUCKETS,
        )

    def observe(self, request: web.Request, status: int, seconds: float) -> None:
        """Count a request, and log it if nobody asks it again and again."""
        route = _route_of(request)
        self._requests.labels(route, str(status)).inc()
        if not route.endswith("/stream"):
            self._seconds.labels(route).observe(seconds)
        if request.path in PROBES or request.path == METRICS:
            return
        asker = request.get(ASKER)
        log.info(
            "Request",
            extra={
                "user": "" if asker is None else asker.name,
                "method": request.method,
                "route": route,
                "status": status,
                "milliseconds": round(1000 * seconds),
            },
        )

    def watch(self, series: Collector) -> None:
        """Serve other series, too."""
        self._registry.register(series)

    def encode(self) -> bytes:
        """Return all series as Prometheus reads them."""
        return generate_latest(self._registry)

    def add_to(self, app: web.Application, access: TokenAccess) -> None:
        """Serve the metrics, to those who have the right to get their path."""

        async def serve(request: web.Request) -> web.Response:
            if not await access.may_get(request, METRICS):
                raise web.HTTPForbidden(reason=f"needs the right to get the path {METRICS}")
            headers = {"Content-Type": CONTENT_TYPE_LATEST}
            return web.Response(body=self.encode(), headers=headers)

        app.router.add_get(METRICS, serve)


def _route_of(request: web.Request) -> str:
    """Return the pattern of a path; of one that nobody serves nothing."""
    resource = request.match_info.route.resource
    return "" if resource is None else resource.canonical
