"""The domains, and what each brings: the only list that a new domain is added to.

Plugins join a cycle in this order, where they do not name others to come after; reflectors start in
it, pods first; and a Lease of some operators only is called after them in this order, so that it
must not change between releases.
"""

from typing import Final

from koord.domains.domain import Command, Domain

DOMAINS: Final = (
    Domain(
        "placement",
        planning="koord.domains.placement:PLANNING",
        operators=("koord.operators.placement",),
        describe="koord.runtime.descriptions:describe_placement",
        commands=(
            Command(
                "room",
                "koord.cli.room",
                "Show where there is room for pods with so many GPUs, and what lacks.",
            ),
            Command(
                "sick",
                "koord.cli.sick",
                "Show what is not well in the cluster, and what to do about it.",
            ),
        ),
    ),
    Domain(
        "gang",
        resources=("koord.api.podgroup:PodGroup",),
        planning="koord.domains.gang:PLANNING",
        operators=("koord.operators.podgroup",),
    ),
    Domain(
        "owners",
        planning="koord.domains.owners:PLANNING",
        settings={"owners": "koord.domains.owner_settings:OwnerSettings"},
        start="koord.runtime.owners:start",
    ),
    # Before quotas, which charge a pod once the room that is held for it is free.
    Domain(
        "suspend",
        planning="koord.domains.suspend:PLANNING",
        settings={"suspend": "koord.domains.suspend_settings:SuspendSettings"},
        start="koord.runtime.suspend:start",
    ),
    Domain(
        "quota",
        resources=(
            "koord.api.elasticquota:ElasticQuota",
            "koord.api.quotaprofile:ElasticQuotaProfile",
        ),
        planning="koord.domains.quota:PLANNING",
        settings={"elastic_quota": "koord.domains.quota_settings:QuotaSettings"},
        operators=("koord.operators.elasticquota", "koord.operators.elasticquotaprofile"),
        start="koord.operators.elasticquota:start_audit",
        describe="koord.runtime.descriptions:describe_quota_state",
        commands=(
            Command("quota", "koord.cli.queries", "Show quotas, explain shares, simulate changes."),
        ),
    ),
    Domain(
        "queue",
        planning="koord.domains.queue:PLANNING",
        settings={"queue": "koord.domains.queue_settings:QueueDefaults"},
    ),
    Domain(
        "reservation",
        resources=("koord.api.reservation:Reservation",),
        planning="koord.domains.reservation:PLANNING",
        settings={"reservation": "koord.domains.reservation_settings:ReservationSettings"},
        operators=("koord.operators.reservation",),
        commands=(
            Command(
                "reservation",
                "koord.cli.queries",
                "Show reservations, and why a pod may use one or not.",
            ),
        ),
    ),
    Domain(
        "topology",
        resources=("koord.api.networktopology:ClusterNetworkTopology",),
        planning="koord.domains.topology:PLANNING",
        operators=("koord.operators.networktopology",),
        commands=(
            Command(
                "topology",
                "koord.cli.queries",
                "Show the domains of the network, and what is free in each.",
            ),
        ),
    ),
    Domain(
        "device",
        resources=("koord.api.device:Device",),
        planning="koord.domains.device:PLANNING",
        settings={"device": "koord.domains.device_settings:DeviceSettings"},
        operators=("koord.operators.device",),
        start="koord.runtime.device_series:start",
        commands=(
            Command(
                "devices",
                "koord.cli.queries",
                "Show the GPUs and NICs of nodes, and who holds what.",
            ),
            Command(
                "fragments",
                "koord.cli.room",
                "Show by model how the free GPUs are spread over nodes, and what no job can use.",
            ),
            Command(
                "device-agent",
                "koord.cli.agent",
                "Report the devices of this node as its Device object.",
            ),
        ),
    ),
    Domain(
        "numa",
        planning="koord.domains.numa:PLANNING",
        settings={"node_ratios": "koord.domains.nodeslo_settings:NodeRatioSettings"},
        start="koord.runtime.node_publishing:start_ratios",
    ),
    Domain(
        "load",
        planning="koord.domains.load:PLANNING",
        settings={"load_aware": "koord.domains.load_settings:LoadAwareSettings"},
        start="koord.runtime.load:start",
        describe="koord.runtime.descriptions:describe_load",
    ),
    Domain(
        "usage",
        planning="koord.domains.usage:PLANNING",
        settings={"usage": "koord.domains.usage_settings:UsageSettings"},
        start="koord.runtime.usage:start",
        commands=(
            Command(
                "usage",
                "koord.cli.usage",
                "Show how many GPU hours pods have held, by namespace, quota, user or job.",
            ),
        ),
    ),
    Domain(
        "eviction",
        settings={"preemption": "koord.domains.preemption_settings:PreemptionSettings"},
        commands=(
            Command(
                "preempt",
                "koord.cli.queries",
                "Show whom a waiting pod, gang or reservation would preempt, and why.",
            ),
        ),
    ),
    Domain(
        "diagnosis",
        settings={"diagnosis": "koord.domains.diagnosis_settings:DiagnosisSettings"},
    ),
    Domain(
        "explanations",
        settings={"explanations": "koord.domains.explanation_settings:ExplanationSettings"},
        start="koord.runtime.explanations:start",
    ),
    Domain(
        "audit",
        settings={"audit": "koord.domains.audit_settings:AuditSettings"},
        start="koord.runtime.audit:start",
        commands=(
            Command(
                "history",
                "koord.cli.history",
                "Show what happened to a pod, gang or Job, and where its time went.",
            ),
            Command(
                "audit",
                "koord.cli.audit",
                "Keep records of decisions in a file, and say who waits, and for whom.",
            ),
        ),
    ),
    Domain(
        "balance",
        resources=("koord.api.rebalancepolicy:RebalancePolicy",),
        planning="koord.domains.balance:PLANNING",
        operators=("koord.operators.rebalancepolicy",),
        commands=(
            Command(
                "balance",
                "koord.cli.balance",
                "Show which nodes are hot and which are low, by what they really use.",
            ),
        ),
    ),
    Domain(
        "migration",
        resources=("koord.api.podmigrationjob:PodMigrationJob",),
        planning="koord.domains.migration:PLANNING",
        settings={"migration": "koord.domains.migration_settings:MigrationSettings"},
        operators=("koord.operators.podmigrationjob",),
    ),
    Domain(
        "maintenance",
        resources=("koord.api.nodemaintenance:NodeMaintenance",),
        planning="koord.domains.maintenance:PLANNING",
        operators=("koord.operators.nodemaintenance",),
    ),
    Domain(
        "profiles",
        resources=("koord.api.clustercolocationprofile:ClusterColocationProfile",),
        planning="koord.domains.profiles:PLANNING",
        settings={"profiles": "koord.domains.profile_settings:ProfileSettings"},
        operators=("koord.operators.clustercolocationprofile",),
    ),
    Domain(
        "autoscaler",
        planning="koord.domains.autoscaler:PLANNING",
        settings={"autoscaler": "koord.domains.autoscaler_settings:AutoscalerSettings"},
        start="koord.runtime.autoscaler:start",
    ),
    Domain(
        "nodeslo",
        resources=("koord.api.nodeslo:NodeSLO",),
        planning="koord.domains.nodeslo:PLANNING",
        settings={"node_slo": "koord.domains.nodeslo_settings:NodeSloSettings"},
        start="koord.runtime.node_publishing:start_node_slos",
    ),
    Domain(
        "defrag",
        resources=("koord.api.defragmentationpolicy:DefragmentationPolicy",),
        planning="koord.domains.defrag:PLANNING",
        operators=("koord.operators.defragmentationpolicy",),
        commands=(
            Command(
                "defrag",
                "koord.cli.moves",
                "Show which running pods would have to move so that a job fits.",
            ),
            Command(
                "drain-plan",
                "koord.cli.moves",
                "Show what becomes of the pods of nodes that are to be emptied.",
            ),
        ),
    ),
    Domain("slo-config", planning="koord.domains.slo_config:PLANNING"),
    Domain(
        "colocation",
        resources=("koord.api.colocationpolicy:ColocationPolicy",),
        planning="koord.domains.colocation:PLANNING",
        settings={"colocation": "koord.domains.colocation_settings:ColocationSettings"},
        operators=("koord.operators.colocationpolicy",),
        commands=(
            Command(
                "colocation",
                "koord.cli.colocation",
                "Show what nodes offer to batch and mid pods, and why.",
            ),
        ),
    ),
    Domain(
        "see",
        settings={"see": "koord.domains.see_settings:SeeSettings"},
        commands=(
            Command(
                "serve",
                "koord.cli.serve",
                "Serve the page and answers to everybody in the cluster, by the rights of each.",
            ),
        ),
    ),
)
