"""What an instance should be: its size and service class, from what it was measured to use, with the reasons."""
