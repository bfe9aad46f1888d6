"""The command line: a client of the API, plus the commands that need no server."""
