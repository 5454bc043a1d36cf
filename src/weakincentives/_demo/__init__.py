"""What `wink demo` shows."""
