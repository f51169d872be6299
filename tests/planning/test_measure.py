"""The measured links of a mesh."""

import pytest
from subprocesses import free_port, joined, lines_of, run_together

from jaxcompress import Collective, VirtualMesh, data_mesh, measure, node_mesh
from jaxcompress.collectives.alone import ALONE
from jaxcompress.planning import measure as module
from jaxcompress.planning.line import Line


@pytest.mark.parametrize("operation", ALONE)
@pytest.mark.parametrize("workers", [2, 8])
@pytest.mark.parametrize("sent", module.SENT_BYTES)
def test_a_worker_sends_about_the_requested_bytes(operation, workers, sent):
    size = module.payload(operation, workers, sent)
    assert size % (4 * workers) == 0
    found = Collective(operation, ("float32",), size, workers).wire_bytes
    assert found == pytest.approx(sent, rel=0.05)


def test_the_lines_are_those_of_the_network(monkeypatch):
    """With a network whose times are known, until a collective takes long enough."""
    line, sizes = Line(0.5, 80.0), []

    def program(operation, size, mesh, names, axes):
        sizes.append(size)
        return Collective(operation, ("float32",), size, 2)

    monkeypatch.setattr(module, "collective_program", program)
    monkeypatch.setattr(module, "agreed_milliseconds", lambda one, repeats: line.ms(one))
    links = measure(data_mesh(2))
    assert links.lines.keys() == {("data",)}
    for operation in ALONE:
        found = links.lines[("data",)][operation]
        assert found.ns_per_byte == pytest.approx(line.ns_per_byte)
        for size in (10_000, 3_000_000, 50_000_000):
            one = Collective(operation, ("float32",), size, 2)
            assert found.ms(one) == pytest.approx(line.ms(one))
    # 4 MiB take 335 ms; no larger ones are sent.
    assert max(sizes) == 2**23  # of which half is sent by an all-to-all


def test_each_axis_is_measured_and_all_together(monkeypatch):
    monkeypatch.setattr(module, "SENT_BYTES", (1024, 2**16))
    links = measure(node_mesh(2, workers=4), ("node", "gpu"), repeats=1)
    assert list(links.lines) == [("node",), ("gpu",), ("node", "gpu")]
    assert all(line.alpha_ms + line.ns_per_byte > 0 for line in links.lines["node",].values())


def test_one_worker_sends_nothing():
    assert measure(data_mesh(1)).lines == {}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"repeats": 0}, "repeats is the runs"),
        ({"axis_name": "model"}, "no 'model'"),
        ({"mesh": VirtualMesh(2)}, "ideal_links"),
        ({"mesh": VirtualMesh(2).abstract}, "ideal_links"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        measure(**{"mesh": data_mesh(2)} | arguments)


# tests/planning/test_plan.py has two processes that measure and plan.
@pytest.mark.slow
def test_two_processes_get_the_same_links():
    body = "print(jaxcompress.measure(jaxcompress.data_mesh(), repeats=2).lines)"
    port = free_port()
    programs = [joined(body, process, 2, port) for process in range(2)]
    (one,), (two,) = lines_of(run_together(programs))
    assert one == two and "all-to-all" in one
