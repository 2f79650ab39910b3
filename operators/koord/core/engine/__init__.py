"""The engine that places pods: extension points, cycle, planner, queue, holds, cluster state."""
