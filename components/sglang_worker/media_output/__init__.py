"""Where finished images and videos go: a file system of fsspec, or base64 in the answer."""
