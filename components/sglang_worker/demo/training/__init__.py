"""How the committed demo weights were made: run by hand, see docs/demo-models.md."""
