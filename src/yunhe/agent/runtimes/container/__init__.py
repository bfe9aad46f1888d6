"""Tasks in containers, by podman or docker."""
