"""Routes, transfers and traffic: what a placement moves over the network."""
