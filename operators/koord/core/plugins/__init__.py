"""Rules of kube-scheduler as plugins of the framework: volumes, ports, affinity, spread."""
