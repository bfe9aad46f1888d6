"""A soak: hours of small jobs on a platform of real processes, sampled for what grows."""
