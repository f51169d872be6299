"""How much of a real gradient does each compressor send, for how many bits?"""
