"""The availability planner: pure mathematics, calls nobody."""
