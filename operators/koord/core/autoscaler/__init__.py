"""Clusters whose nodes come and go: what autoscalers are told, and what nodes say of themselves."""
