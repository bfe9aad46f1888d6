"""What runs on a node: one daemon, standard library only, shipped as one file."""
