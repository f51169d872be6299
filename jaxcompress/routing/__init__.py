"""Compressors that choose compressors: by array, or by step."""
