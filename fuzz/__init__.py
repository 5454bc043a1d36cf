"""Fuzzing: `make fuzz`, or `python -m fuzz paths --seconds 60`. No input may do more than the documented errors say."""
