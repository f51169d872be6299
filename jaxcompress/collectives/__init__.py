"""The ways a message travels between workers. Nothing else in the library touches the network."""
