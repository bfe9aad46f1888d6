"""The smallest changes that would let a waiting demand run now."""
