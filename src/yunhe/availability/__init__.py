"""The availability planner: how few services meet a target, and what that rests on. Calls nobody."""
