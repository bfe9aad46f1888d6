"""What deciding on compute, data and network together is worth."""
