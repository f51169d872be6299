"""Steps per second over a link whose rate changes while workers train."""
