"""What one instance uses, how often and when."""
