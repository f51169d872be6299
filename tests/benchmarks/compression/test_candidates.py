"""Which compressors are timed."""

from benchmarks.common.expressions import public_schemes
from benchmarks.compression.candidates import CANDIDATES


def test_every_compressor_is_measured_except_the_exact_decomposition():
    measured = {candidate.text.split("(")[0] for candidate in CANDIDATES}
    packages = ("jaxcompress.compressors", "jaxcompress.contrib")
    known = {name for package in packages for name in public_schemes(package)}
    assert measured == {"dense", *known} - {"svd"}
