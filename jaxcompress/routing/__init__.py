"""Compressors that choose among compressors: by array, or by step."""
