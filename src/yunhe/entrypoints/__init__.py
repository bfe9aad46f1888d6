"""The doors: CLI, API and client; no rule of the business lives here."""
