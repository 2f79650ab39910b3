"""The planner: one transaction over nodes, and the extension points that every domain joins."""
