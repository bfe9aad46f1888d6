"""An engine in memory that fails on request; for tests of the promises."""
