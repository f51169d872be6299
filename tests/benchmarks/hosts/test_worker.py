"""A worker's answers: how often it runs a program, what it times, which bytes it counts."""

import io
import json
from pathlib import Path

from benchmarks.hosts import worker as network_worker
from benchmarks.hosts.worker import measure, serve


class Sent:
    """An interface: every step sends 100 bytes, every wait for all another one."""

    def __init__(self):
        self.calls, self.bytes = "", 0

    def read(self) -> tuple[int, int]:
        """Bytes and packets: one packet for each call."""
        return self.bytes, len(self.calls)

    def step(self):
        """Sends a message."""
        self.calls, self.bytes = self.calls + "s", self.bytes + 100

    def between(self):
        """Waits for all."""
        self.calls, self.bytes = self.calls + "b", self.bytes + 1


def test_the_counters_are_read_as_the_kernel_shows_them(tmp_path, monkeypatch):
    monkeypatch.setattr(network_worker, "STATISTICS", tmp_path)
    Path(tmp_path, "tx_bytes").write_text("1234\n")
    Path(tmp_path, "tx_packets").write_text("5\n")
    assert network_worker.sent() == (1234, 5)


def test_every_step_is_prepared_and_warm_up_is_not_counted(monkeypatch):
    sent = Sent()
    monkeypatch.setattr(network_worker, "sent", sent.read)
    answer = measure(sent.step, sent.between, warm_up=2, repeats=3)
    assert sent.calls == "bsbs" + "b" + "bsbsbs" + "b"
    assert (answer["sent_bytes"], answer["sent_packets"]) == (3 * 100 + 4, 3 + 4)
    times = [time for both in zip(answer["begins"], answer["ends"], strict=True) for time in both]
    assert times == sorted(times)
    assert len(times) == 6
    assert answer["result"] == {}


def test_what_the_timed_steps_use_is_counted_and_nothing_between_them(monkeypatch):
    sent, used = Sent(), {"user_ms": 5.0, "waits": 2}

    def step():
        used["user_ms"] += 4.0
        used["waits"] += 1

    def between():
        used["user_ms"] += 100.0

    monkeypatch.setattr(network_worker, "sent", sent.read)
    monkeypatch.setattr(network_worker, "used", used.copy)
    answer = measure(step, between, warm_up=2, repeats=3)
    assert answer["used"] == {"user_ms": 12.0, "waits": 3}


def test_computing_uses_time():
    before = network_worker.used()
    sum(i * i for i in range(10**6))
    after = network_worker.used()
    assert all(after[name] >= before[name] for name in before)
    assert after["user_ms"] + after["system_ms"] > before["user_ms"] + before["system_ms"]


def test_a_dict_that_a_program_returns_is_reported(monkeypatch):
    sent, losses = Sent(), iter([1.0, 2.0, 3.0])
    monkeypatch.setattr(network_worker, "sent", sent.read)
    answer = measure(lambda: {"loss": next(losses)}, sent.between, warm_up=1, repeats=2)
    assert answer["result"] == {"loss": 3.0}


def test_each_line_is_answered_by_a_line(monkeypatch, capsys):
    sent = Sent()
    monkeypatch.setattr(network_worker, "sent", sent.read)
    request = {"program": "step", "warm_up": 1, "repeats": 1}
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{json.dumps(request)}\n"))
    serve({"version": "x 1"}, {"step": sent.step, "bare": sent.step}, sent.between)
    ready, answer = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert ready == {"version": "x 1", "programs": ["step", "bare"]}
    assert len(answer["ends"]) == 1
