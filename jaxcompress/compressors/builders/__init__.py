"""Functions that build whole families of compressors: from entries, rows or linear maps."""
