"""Fetching and checking the media that clients send: data URIs and http(s) URLs, nothing else.

Whatever is wrong is a `MediaError` whose message may be shown to the client.
"""
