"""What the platform tells of itself: logs without secrets, metrics, failpoints, loops that are restarted."""
