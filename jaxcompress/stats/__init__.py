"""What a run can tell about itself: the bytes it moves, and how much of a gradient survives."""
