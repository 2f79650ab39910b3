"""The operators: one module each, with what it runs and the custom resource that it keeps."""
