"""What every engine promises; third parties depend on this alone."""
