"""How much a host needs for its instances at a stated overload probability."""
