"""Schemes of historical interest: the same law and notation, with less of a promise to stay."""

from jaxcompress.contrib.arc_top_k import arc_top_k
from jaxcompress.contrib.bernoulli import bernoulli
from jaxcompress.contrib.head_top_k import head_top_k
from jaxcompress.contrib.importance_sampled import importance_sampled
from jaxcompress.contrib.nuqsgd import nuqsgd
from jaxcompress.contrib.onebit_lamb import onebit_lamb, scale_by_onebit_lamb
from jaxcompress.contrib.sampled_threshold import sampled_threshold
from jaxcompress.contrib.sign_majority import sign_majority
from jaxcompress.contrib.svd import svd
from jaxcompress.contrib.zero_one_adam import scale_by_zero_one_adam, zero_one_adam

__all__ = [
    "nuqsgd",
    "sign_majority",
    "bernoulli",
    "importance_sampled",
    "sampled_threshold",
    "head_top_k",
    "arc_top_k",
    "svd",
    "onebit_lamb",
    "scale_by_onebit_lamb",
    "zero_one_adam",
    "scale_by_zero_one_adam",
]
