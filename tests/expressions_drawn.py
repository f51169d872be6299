"""Hypothesis strategies for expressions of every public compressor, with drawn arguments.

Arguments may be drawn that a constructor refuses, as a memory around what does not contract:
`accepted` tells.
"""

from hypothesis import strategies as st

from jaxcompress import Compressor, parse


def call(name: str, *arguments: st.SearchStrategy, **keywords: st.SearchStrategy):
    """The text of a call; each keyword is given or left out."""

    def text(given, named):
        return f"{name}({', '.join([*map(str, given), *(f'{k}={v}' for k, v in named.items())])})"

    return st.builds(text, st.tuples(*arguments), st.fixed_dictionaries({}, optional=keywords))


def quoted(*texts: str) -> st.SearchStrategy[str]:
    return st.sampled_from(texts).map(repr)


densities = st.floats(0.02, 1.0).map(lambda density: round(density, 3))
blocks = st.integers(2, 40)
groups = st.integers(1, 80)
ranks = st.integers(1, 4)
values = st.sampled_from(["dense()", "qsgd(8)", "cast('bfloat16')", "int8(group=32)"])

CODECS = {
    "top_k": call("top_k", densities, inner=values),
    "block_top_k": call("block_top_k", densities, block=blocks, inner=values),
    "block_max": call("block_max", blocks, inner=values),
    "threshold": call("threshold", st.sampled_from([0.0, 0.5, 9.0]), capacity=densities),
    "sampled_threshold": call("sampled_threshold", densities),
    "importance_sampled": call("importance_sampled", densities, block=blocks),
    "block_sparse": call("block_sparse", densities, block=blocks),
    "row_top_k": call("row_top_k", densities, inner=values),
    "column_top_k": call("column_top_k", densities),
    "head_top_k": call("head_top_k", densities, st.integers(1, 9)),
    "qsgd": call("qsgd", st.integers(2, 16), group=groups, norm=quoted("max", "l2")),
    "nuqsgd": call("nuqsgd", st.integers(2, 6), group=groups),
    "terngrad": call("terngrad", clip=st.sampled_from([None, 1.5]), group=groups),
    "natural": call("natural"),
    "int8": call("int8", group=groups, stochastic=st.booleans()),
    "int4": call("int4", group=groups, stochastic=st.booleans()),
    "int2": call("int2", group=groups),
    "lloyd_max": call("lloyd_max", st.integers(1, 6), group=groups, unbiased=st.booleans()),
    "float8": call("float8", quoted("e4m3", "e5m2"), group=groups),
    "cast": call("cast", quoted("bfloat16", "float16", "float32")),
    "sign": call("sign", st.sampled_from([32, 64, 4096])),
    "svd": call("svd", ranks),
    "dense": call("dense"),
}
SHARED = {
    "eden": call("eden", st.integers(1, 6), block=st.sampled_from([2, 16, 64])),
    "random_k": call("random_k", densities, inner=values, rescale=st.booleans()),
    "bernoulli": call("bernoulli", densities, rescale=st.booleans()),
    "shared_top_k": call("shared_top_k", densities),
    "int_sum": call("int_sum", st.sampled_from([8, 16]), group=st.sampled_from([8, 64, 512])),
    "arc_top_k": call("arc_top_k", densities, block=blocks, columns=st.integers(1, 3)),
    "global_top_k": call("global_top_k", densities, inner=values),
    "sign_majority": call("sign_majority"),
    "dgc_warmup": call("dgc_warmup", densities, warmup_steps=st.integers(0, 1)),
    "power_sgd": call(
        "power_sgd",
        ranks,
        iterations=st.integers(1, 2),
        inner=st.just("cast('bfloat16')"),
        orthogonalize=quoted("gram_schmidt", "householder", "cholesky"),
    ),
    "acp_sgd": call("acp_sgd", ranks),
    "batched_power_sgd": call("batched_power_sgd", ranks),
}


@st.composite
def any_of(draw: st.DrawFn, strategies: dict[str, st.SearchStrategy[str]]) -> str:
    """An expression of one of these constructors."""
    return draw(strategies[draw(st.sampled_from(sorted(strategies)))])


codecs, stateless = any_of(CODECS), any_of(CODECS | SHARED)
AROUND = {
    "one_phase": call("one_phase", codecs),
    "two_phase": call("two_phase", codecs),
    "rotated": call("rotated", codecs, block=st.sampled_from([2, 16, 64])),
    "dct": call("dct", codecs, tile=st.sampled_from([2, 5, 64])),
    "hierarchical": call("hierarchical", st.just("dense()"), codecs),
    "whole_model": call("whole_model", stateless),
    "monitor": call("monitor", stateless),
    "switch": call("switch", st.just("warmup(1)"), stateless, stateless),
    "adaptive": call(
        "adaptive", st.sampled_from(["accordion(every=1)", "gain(0.5)"]), stateless, stateless
    ),
    "partition": st.builds(
        "partition({{'matrix': {}, 'rest': {}}}, by_shape())".format, stateless, stateless
    ),
    "error_feedback": call("error_feedback", stateless),
    "momentum_correction": call("momentum_correction", codecs, masking=st.booleans()),
    "ef21": call("ef21", stateless),
    "ef21_sgdm": call("ef21_sgdm", stateless, momentum=st.sampled_from([0.0, 0.5])),
    "control_variate": call("control_variate", stateless, st.sampled_from([0.1, 1.0])),
}
EXPRESSIONS = CODECS | SHARED | AROUND


def accepted(text: str) -> bool:
    """Whether the constructors accept these arguments."""
    try:
        return isinstance(parse(text), Compressor)
    except ValueError:
        return False


expressions = any_of(EXPRESSIONS)
