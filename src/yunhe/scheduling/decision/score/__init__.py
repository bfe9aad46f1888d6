"""The terms of the score, and what each policy makes of them."""
