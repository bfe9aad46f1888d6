"""Tasks as processes of the host itself."""
