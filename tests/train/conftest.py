"""Runs inside the process of the tests share what they compile: most train one model in one way."""

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

KEEPS_ALL = {
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}


@pytest.fixture(autouse=True, scope="module")
def compiled_once(tmp_path_factory):
    """A folder of compiled programs for the tests of one file."""
    settings = KEEPS_ALL | {"jax_compilation_cache_dir": str(tmp_path_factory.mktemp("compiled"))}
    before = {name: getattr(jax.config, name) for name in settings}
    change(settings)
    yield
    change(before)


def change(settings: dict) -> None:
    """The settings count from the next compilation on."""
    for name, value in settings.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
