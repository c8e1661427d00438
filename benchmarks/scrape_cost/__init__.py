"""Measuring what a scrape costs: windows, and what they say."""
