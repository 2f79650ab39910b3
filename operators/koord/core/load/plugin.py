"""Keeps the reports about nodes, for every domain that asks what is really used.

Reports of several sources may exist of one node; the best one counts. Nothing is read here.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import ClassVar

from koord.core.engine.plugin import Plugin
from koord.core.load.model import LoadSource, NodeLoad


class Loads(Plugin):
    """The reports about all nodes."""

    name: ClassVar = "load"

    def __init__(self, *, compat: bool = False) -> None:
        self._compat = compat
        self.listeners: list[Callable[[str], None]] = []
        """Called with the name of a node about which there is another report than before."""
        self._reports: dict[LoadSource, dict[str, NodeLoad]] = {kind: {} for kind in LoadSource}

    def of(self, node: str) -> NodeLoad | None:
        """Return the report about a node that counts: of the best source that has one."""
        reports = (of_source.get(node) for of_source in self._reports.values())
        return next((report for report in reports if report is not None), None)

    def nodes(self) -> Iterator[str]:
        """Yield the names of all nodes with a report, in order."""
        yield from sorted({name for of_source in self._reports.values() for name in of_source})

    def reports(self) -> Iterator[tuple[str, NodeLoad]]:
        """Yield the report about each node that counts, by the name of the node."""
        for name in self.nodes():
            report = self.of(name)
            if report is not None:
                yield name, report

    def of_source(self, source: LoadSource) -> tuple[NodeLoad, ...]:
        """Return all reports of one source."""
        return tuple(self._reports[source].values())

    def lacks(self, nodes: Iterable[str]) -> bool:
        """Whether the best source says nothing about one of these nodes."""
        best = self._reports[LoadSource.NODE_METRIC]
        return any(node not in best for node in nodes)

    def upsert(self, report: NodeLoad) -> None:
        """Apply a report, which replaces the earlier one of its source.

        One without a time is outdated; with ``compat`` it is as old as the one before. One that
        cannot be read replaces none: the earlier one counts until it is outdated.
        """
        of_source = self._reports[report.source]
        before = of_source.get(report.node)
        if not report.is_readable and before is not None:
            return
        if self._compat and before is not None and not report.updated:
            report = replace(report, updated=before.updated)
        of_source[report.node] = report
        self._notify(report.node)

    def remove(self, report: NodeLoad) -> None:
        """Apply that there is no report of a source about a node any more."""
        if self._reports[report.source].pop(report.node, None) is not None:
            self._notify(report.node)

    def _notify(self, node: str) -> None:
        for listener in self.listeners:
            listener(node)
