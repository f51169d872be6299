"""Compression schemes, one per file; most are built by `gathered`, `sparse` or `linear`."""
