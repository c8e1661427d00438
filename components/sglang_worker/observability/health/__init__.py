"""Is the engine fit to serve: a judge without a clock, what it looks at, and the loop around it."""
