"""``koord …``: what people type. Talks to the cluster with its user's own credentials."""
