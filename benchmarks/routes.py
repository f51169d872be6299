"""What is compared among many workers: dense, low rank, and three codecs in one phase and in two."""

COMPRESSORS = [
    "dense()",
    "error_feedback(power_sgd(2))",
    "error_feedback(one_phase(block_top_k(0.01, inner=qsgd(6))))",
    "error_feedback(two_phase(block_top_k(0.01, inner=qsgd(6))))",
    "error_feedback(one_phase(qsgd(4)))",
    "error_feedback(two_phase(qsgd(4)))",
    "error_feedback(one_phase(sign()))",
    "error_feedback(two_phase(sign()))",
]
