"""What nodes really use: reports about it, estimates for new pods, limits and scores by load."""
