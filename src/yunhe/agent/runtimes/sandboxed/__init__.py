"""Tasks in a sandbox with a kernel of its own, by gVisor's ``runsc``."""
