"""What NodeSLOs say to the agents of nodes."""
