"""Which questions can be asked over HTTP, and which answers they get: one table.

A route computes the value that the command of the same name prints with ``--output json``. Where
each is computed: ``unit_routes``, ``audit_routes``, ``cluster_routes``, ``trial_routes``,
``usage_routes``.
"""

from typing import Final

from koord.answers.audit_report import AuditReport
from koord.answers.edits import MOST_EDITS
from koord.answers.explanation import Explanation
from koord.answers.fragmentation import Fragmentation
from koord.answers.gpu_map import GpuMap
from koord.answers.health import HealthFinding
from koord.answers.overview import Overview
from koord.answers.queue_view import QueueEntry
from koord.answers.quota_view import QuotaInFullDocument, QuotaView
from koord.answers.remedies import RemediesDocument
from koord.answers.reservations import ReservationUsage
from koord.answers.room import ShapeRoom
from koord.answers.story import Story
from koord.answers.timeline import TimelineEntry
from koord.answers.topology import TopologyCapacity
from koord.answers.usage_report import UsageReport
from koord.answers.usage_view import NodeUsage
from koord.answers.what_if import WhatIfAnswer
from koord.see import audit_routes as audit
from koord.see import cluster_routes as cluster
from koord.see import trial_routes as trial
from koord.see import unit_routes as unit
from koord.see import usage_routes as usage
from koord.see.route import Route

ROUTES: Final = (
    Route("Overview", "overview", "The cluster at a glance.", cluster.show_overview, Overview),
    Route(
        "Queue",
        "queue",
        "What waits, in the order of planning.",
        cluster.list_queue,
        QueueEntry,
        cluster.QUEUE,
    ),
    Route(
        "Explanation",
        "namespaces/{namespace}/explanations/{kind}/{name}",
        "Why a pod, PodGroup or Reservation waits, and what would help.",
        unit.explain_unit,
        Explanation,
    ),
    Route(
        "Remedies",
        "namespaces/{namespace}/remedies/{kind}/{name}",
        "What would help it, each tried on a copy.",
        unit.find_remedies,
        RemediesDocument,
    ),
    Route(
        "Story",
        "namespaces/{namespace}/stories/{kind}/{name}",
        "What happened to it, and where its time went.",
        unit.tell_story,
        Story,
        begin=unit.begin_story,
        fetches=True,
        is_kept=False,
    ),
    Route(
        "Decisions",
        "decisions",
        "What was decided and what happened in the cluster.",
        audit.list_decisions,
        TimelineEntry,
        audit.DECISIONS,
    ),
    Route(
        "AuditReport",
        "auditreport",
        "Where waiting time went: waits, causes, who blocks, who starves.",
        audit.report_audit,
        AuditReport,
        params=audit.AUDIT_PARAMS,
        begin=audit.begin_audit_report,
        is_kept=False,
    ),
    Route(
        "UsageReport",
        "usage",
        "Which GPUs were held in a month: shares of quotas, who used what, what was lost.",
        usage.report_usage,
        UsageReport,
        params=usage.USAGE_PARAMS,
        begin=usage.begin_usage_report,
        is_kept=False,
    ),
    Route(
        "Quotas",
        "quotas",
        "All quotas, and what they use.",
        cluster.list_quotas,
        QuotaView,
        cluster.BY_NAME,
    ),
    Route(
        "Quota",
        "quotas/{name}",
        "A quota, who uses it and what waits.",
        cluster.show_quota,
        QuotaInFullDocument,
    ),
    Route(
        "Namespaces",
        "namespaces",
        "Namespaces in which you may list pods; ask again while isComplete is false.",
        cluster.list_namespaces,
        cluster.NamespacesDocument,
    ),
    Route(
        "Fragmentation",
        "fragmentation",
        "How the free GPUs are spread over nodes.",
        cluster.show_fragmentation,
        Fragmentation,
    ),
    Route(
        "Health",
        "health",
        "What is not well.",
        cluster.list_findings,
        HealthFinding,
        cluster.FINDINGS,
    ),
    Route(
        "Nodes",
        "nodes",
        "Nodes, what is used there, by whom.",
        cluster.list_nodes,
        NodeUsage,
        cluster.NODES,
    ),
    Route(
        "Node",
        "nodes/{name}",
        "A node, and the pods on it.",
        cluster.show_node,
        cluster.NodeInFullDocument,
    ),
    Route("Map", "map", "Every GPU by node, and who has it.", cluster.show_map, GpuMap),
    Route(
        "Devices",
        "nodes/{name}/devices",
        "The devices of a node.",
        cluster.show_devices,
        cluster.DevicesDocument,
    ),
    Route(
        "Reservations",
        "reservations",
        "What reservations hold, and for whom.",
        cluster.list_reservations,
        ReservationUsage,
        cluster.RESERVATIONS,
    ),
    Route(
        "Topology",
        "topologies/{name}",
        "The domains of a network topology, and what is free in each.",
        cluster.show_topology,
        TopologyCapacity,
    ),
    Route(
        "Room",
        "room",
        "Where there is room for pods with so many GPUs.",
        trial.find_places,
        ShapeRoom,
        body=trial.ROOM_BODY,
    ),
    Route(
        "WhatIf",
        "whatifs",
        "What edits of the cluster would change; nothing is written.",
        trial.try_edits,
        WhatIfAnswer,
        body=trial.WHAT_IF_BODY,
        schemas={"edits": {"type": "array", "items": {"type": "object"}, "maxItems": MOST_EDITS}},
    ),
)
