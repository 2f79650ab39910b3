"""All labels, annotations and condition types that the operators read or write, by feature.

Our own are in `operators`, all others are those of Koordinator, Kubernetes and Kueue.
"""
