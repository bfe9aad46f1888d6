"""The words everyone shares: resources, units, ids, money, places, errors, events."""
