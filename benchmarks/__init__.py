"""One package per question. `results/` has the measurements, with machine, versions and commit."""
