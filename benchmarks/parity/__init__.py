"""Compares the feasible nodes of pods, ours with those of kube-scheduler, node by node.

Clusters and pods are drawn at random (`cases`), a real kube-scheduler is asked (`scheduler`), and
the planner's rules answer for the same objects (`ours`). What such a comparison is worth, rules
that were broken on purpose show (`mutants`): each of them has to be found out.
"""
