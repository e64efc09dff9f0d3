"""When rows are due: the wheel, the ticker, and loading hours in time."""
