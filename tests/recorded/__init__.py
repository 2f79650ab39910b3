"""Plans of random clusters, recorded: what the planner decides about each, as a short digest.

Pins plans of random clusters so that a change of the planner that is not meant to change plans can
be checked; re-record when a change is meant to::

    python -m tests.recorded record [--full FILE]
    python -m tests.recorded compare
    python -m tests.recorded show NUMBER

``scenarios`` makes cluster number N, the same every time: ``world`` its nodes, networks and
volumes, ``quotas`` its quotas, ``jobs`` what is to be placed, ``changes`` what happens between one
round of planning and the next. ``adapter`` plans, and is the only one that knows how that is done;
``recording`` makes digests of what it returns, and counts what was met.
"""
