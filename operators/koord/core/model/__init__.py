"""Values that all rooms of core share: pods, nodes, gangs, plans, reasons. Decides nothing."""
