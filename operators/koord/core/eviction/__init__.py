"""Which running units make room for a waiting one: preemption, and reclaim of over-used quotas."""
