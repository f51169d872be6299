"""State that compressors keep between steps. A memory wraps any compressor and knows none."""
