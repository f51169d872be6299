"""Is any compressor slower than at an earlier commit?"""
