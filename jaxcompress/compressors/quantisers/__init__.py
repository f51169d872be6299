"""Few bits for every entry."""
