"""Places gangs by network topology: a strategy of the planner over the trees of the package."""
