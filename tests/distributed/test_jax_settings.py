"""Which settings must be equal in all processes."""

from jaxcompress.distributed.jax_settings import numeric_settings


def test_flags_are_in_order_and_those_without_effect_are_left_out(monkeypatch):
    flags = "--xla_b=2 --xla_dump_to=/a --xla_force_host_platform_device_count=3 --xla_a=1"
    monkeypatch.setenv("XLA_FLAGS", f"{flags} --xla_log_x")
    assert numeric_settings()["XLA_FLAGS"] == "--xla_a=1 --xla_b=2"
