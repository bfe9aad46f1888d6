"""The daemon: its socket, server, bridge, spawner and upgrade."""
