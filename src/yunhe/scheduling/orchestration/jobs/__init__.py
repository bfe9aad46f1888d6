"""The life of a job: its states and rows, the placer, the driver and what each step does."""
