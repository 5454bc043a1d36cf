"""Budgets, measured as ratios in one run: `make bench`, or `python -m benchmarks NAME ...`."""
