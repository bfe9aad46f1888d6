"""Python environments of tasks: made once for a content on a node, then shared read-only by the jobs of a project."""
