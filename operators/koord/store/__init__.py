"""The store of decision records and of what pods held: one SQLite file of one process.

``keeper`` is what a process holds: it writes in one thread. ``reading`` answers questions, from any
thread and any process. Who follows the feed of the leader: ``feed``. Knows nothing of the cluster.
"""
