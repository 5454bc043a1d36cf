"""What runs in the worker process of `AstevalBackend`: standard library and asteval only, nothing of WINK's.

`main` keeps the worker going, `confine` takes rights away, `language`, `syntax`, `trying` and `files` are what the code
may do. `frames`
and `control` are how both sides talk; the host imports these two alone.
"""
