"""Whose turn it is: queues, their order and limits, and for whom room is reserved."""
