"""Over-commitment: what nodes offer to batch and mid pods beside what others are using."""
