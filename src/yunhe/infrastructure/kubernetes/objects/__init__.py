"""Our objects in a cluster: pods, records, nodes, their names and phases."""
