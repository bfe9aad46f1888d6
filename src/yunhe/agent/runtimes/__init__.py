"""What runs a task: as a process or in a container."""
