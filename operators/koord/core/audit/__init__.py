"""Records of decisions: what they hold, and the bounded ring that keeps the last of them."""
