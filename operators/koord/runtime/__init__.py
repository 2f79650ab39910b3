"""The running process: configuration, logs, metrics, HTTP, and the root that composes all parts."""
