"""Files and logs into and out of a pod."""
