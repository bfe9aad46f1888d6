"""What makes a claim about speed or memory; each module prints its table."""
