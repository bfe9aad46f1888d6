"""What a command works with: context, connection, local server, task files."""
