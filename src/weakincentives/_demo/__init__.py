"""What `wink demo` shows, one module a subject; each has `show()`, which gives the text."""
