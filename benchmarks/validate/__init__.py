"""Does this installation work?"""
