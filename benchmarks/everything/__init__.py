"""Runs every benchmark that needs neither root, nor a GPU, nor another environment."""
