"""Logs of this process and of the engine's: structured on demand, bounded, without noise."""
