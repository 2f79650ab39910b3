"""Where pods go: fit, score, the transaction, and the planner that joins all domains."""
