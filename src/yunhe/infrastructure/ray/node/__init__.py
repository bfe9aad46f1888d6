"""What runs on a Ray node for each allocation: standard library and the agent's parts, shipped as a package."""
