"""Archives into and out of an allocation's directory."""
