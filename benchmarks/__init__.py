"""One question a file. What was measured stands in `results/`, beside the machine, the commit and the versions."""
