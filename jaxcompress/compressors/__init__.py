"""One scheme a file. Each ends in one of the ways to travel: `gathered`, `sparse` or `sketched`."""
