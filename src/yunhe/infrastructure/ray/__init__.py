"""Ray clusters as pools, through the Jobs API of their dashboards."""
