"""A Dynamo worker for SGLang. Importing the package is cheap: nothing heavy is loaded here."""

__version__ = "0.1.0"
