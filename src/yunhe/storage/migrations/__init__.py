"""The schema's history, one file a step; never edited once released."""
