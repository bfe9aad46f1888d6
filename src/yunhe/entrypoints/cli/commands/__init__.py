"""The commands, grouped as `yunhe --help` groups them."""
