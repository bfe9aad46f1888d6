"""The published availability model as printed: its equations and its two-level search, to compare with."""
