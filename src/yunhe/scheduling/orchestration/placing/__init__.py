"""Placing pending jobs: which are looked at, what is decided for them, and what decisions were made on."""
