"""What a terminal shows: screen, tables, progress, problems."""
