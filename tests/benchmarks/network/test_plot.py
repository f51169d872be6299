"""The plot is drawn for any rows."""

import pytest

from benchmarks.network.plot import plot


@pytest.mark.parametrize(
    "networks", [[(2, "1gbit")], [(2, "1gbit"), (4, "100mbit"), (4, "10gbit")]]
)
def test_one_panel_for_each_network(networks, tmp_path):
    rows = [
        {"framework": framework, "method": "dense", "workers": workers, "rate": rate}
        | {"step_ms": "10.0", "communication_ms": "11.0", "floor_ms": "8.0"}
        for workers, rate in networks
        for framework in ("jax", "torch")
    ]
    assert plot(rows, tmp_path / "a.png").stat().st_size > 1000
