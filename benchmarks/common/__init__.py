"""Shared by several benchmarks: results, pages, plots, expressions, timing."""
