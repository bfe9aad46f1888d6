"""Projects, users, roles, keys, secrets and the audit log."""
