"""The network as a tree of domains, and how a gang is split over it. Knows no pods and no plans."""
