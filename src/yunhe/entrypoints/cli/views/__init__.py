"""How answers look, a module per subject."""
