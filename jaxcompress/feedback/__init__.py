"""What is remembered between steps. A memory wraps any compressor and knows none."""
