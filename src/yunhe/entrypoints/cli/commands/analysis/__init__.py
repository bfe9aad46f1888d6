"""Commands that need no server: plans, assessments, simulations."""
