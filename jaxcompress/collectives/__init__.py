"""The ways in which messages travel between workers: the only modules that use the network."""
