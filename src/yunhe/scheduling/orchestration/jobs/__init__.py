"""The life of a job: its states and rows, the driver and what each step does."""
