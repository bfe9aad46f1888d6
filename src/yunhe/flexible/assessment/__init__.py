"""Rules for sharing hosts, compared on the same trace: hosts needed, money, promises broken."""
