"""How many times processors and resources of nodes count: normalised and amplified ratios."""
