"""Takes a task from a user and sees it become a job."""
