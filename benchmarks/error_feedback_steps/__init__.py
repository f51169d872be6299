"""How does an error memory send later what a step leaves out?"""
