"""Hosts on one machine: network namespaces, with one process in each."""
