"""NUMA nodes and CPUs: policies, hints, pinning; kept per node and joined to the planner."""
