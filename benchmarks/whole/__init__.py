"""The parts of ``benchmarks.run``: what is measured, and steps with an end."""
