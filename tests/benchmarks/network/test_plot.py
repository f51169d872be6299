"""A panel for each network that was measured, with a line for each row."""

import pytest

from benchmarks.network import plot


@pytest.mark.parametrize(
    "networks", [[(2, "1gbit")], [(2, "1gbit"), (4, "100mbit"), (4, "10gbit")]]
)
def test_one_panel_for_each_network(networks, monkeypatch):
    monkeypatch.setattr(plot, "save", lambda figure, path: figure)
    rows = [
        {"framework": framework, "method": "dense()", "workers": workers, "rate": rate}
        | {"step_ms": "10.0", "communication_ms": "9.0", "floor_ms": "8.0"}
        for workers, rate in networks
        for framework in ("jax", "torch")
    ]
    panels = [axes for axes in plot.plot(rows, "a.png").axes if axes.get_visible()]
    assert {axes.get_title() for axes in panels} == {f"{w} hosts, {rate}/s" for w, rate in networks}
    for axes in panels:
        assert [text.get_text() for text in axes.texts] == ["10", "10"]
        markers = [line.get_marker() for line in axes.get_lines()]
        assert [marker for marker in markers if marker in ("o", "D")] == ["o", "D"]
