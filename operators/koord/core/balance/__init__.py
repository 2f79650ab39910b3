"""Moving pods off hot nodes, by what nodes and pods really use."""
