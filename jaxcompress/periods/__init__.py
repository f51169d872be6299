"""Averaging once in a period: workers' own parameters, their synchronisation and their step."""
