"""The connection to an API server: credentials, requests, watches, informers."""
