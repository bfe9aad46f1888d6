"""SkyPilot's task files: what each field means here, and the task that a file becomes."""
