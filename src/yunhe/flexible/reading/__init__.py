"""From tables of usage to traces: columns, units, cells, sizes."""
