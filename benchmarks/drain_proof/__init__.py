"""The parts of `benchmarks.drain`: load, verdicts, phases, report. See docs/drain.md."""
