"""Measurements of a run: the bytes it moves, and how much of a gradient survives compression."""
