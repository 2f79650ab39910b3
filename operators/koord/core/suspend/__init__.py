"""Jobs that wait suspended, without pods, until all of their pods have room."""
