"""The Python client of the API, sync and async."""
