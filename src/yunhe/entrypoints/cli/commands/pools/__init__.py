"""Commands about pools and plugins."""
