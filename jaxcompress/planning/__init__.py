"""Whether to compress, and with what: measured links, measured local work, and a plan."""
