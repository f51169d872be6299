"""Gradient compression for data-parallel training in JAX: compressors that are links of an Optax chain."""

from jaxcompress.base import Codec, Compressor, PerWorker, Reduced, expressible
from jaxcompress.collectives.dense import dense
from jaxcompress.collectives.gathered import gathered
from jaxcompress.collectives.hierarchical import hierarchical
from jaxcompress.collectives.one_phase import one_phase
from jaxcompress.collectives.sketched import sketched
from jaxcompress.collectives.sparse import sparse
from jaxcompress.collectives.sparse_rows import sparse_rows
from jaxcompress.collectives.two_phase import two_phase
from jaxcompress.collectives.whole_model import whole_model
from jaxcompress.compressors.low_rank.acp_sgd import acp_sgd
from jaxcompress.compressors.low_rank.power_sgd import batched_power_sgd, power_sgd
from jaxcompress.compressors.low_rank.svd import svd
from jaxcompress.compressors.quantisers.cast import cast
from jaxcompress.compressors.quantisers.float8 import float8
from jaxcompress.compressors.quantisers.integer import int2, int4, int8
from jaxcompress.compressors.quantisers.natural import natural
from jaxcompress.compressors.quantisers.nuqsgd import nuqsgd
from jaxcompress.compressors.quantisers.qsgd import qsgd
from jaxcompress.compressors.quantisers.rotated import rotated
from jaxcompress.compressors.quantisers.sign import sign
from jaxcompress.compressors.quantisers.sign_majority import sign_majority
from jaxcompress.compressors.quantisers.terngrad import terngrad
from jaxcompress.compressors.sparsifiers.arc_top_k import arc_top_k
from jaxcompress.compressors.sparsifiers.bernoulli import bernoulli
from jaxcompress.compressors.sparsifiers.block_max import block_max
from jaxcompress.compressors.sparsifiers.block_sparse import block_sparse
from jaxcompress.compressors.sparsifiers.block_top_k import block_top_k
from jaxcompress.compressors.sparsifiers.column_top_k import column_top_k
from jaxcompress.compressors.sparsifiers.global_top_k import global_top_k
from jaxcompress.compressors.sparsifiers.head_top_k import head_top_k
from jaxcompress.compressors.sparsifiers.importance_sampled import importance_sampled
from jaxcompress.compressors.sparsifiers.random_k import random_k
from jaxcompress.compressors.sparsifiers.row_top_k import row_top_k
from jaxcompress.compressors.sparsifiers.sampled_threshold import sampled_threshold
from jaxcompress.compressors.sparsifiers.shared_top_k import shared_top_k
from jaxcompress.compressors.sparsifiers.threshold import threshold
from jaxcompress.compressors.sparsifiers.top_k import top_k
from jaxcompress.distributed.agreement import assert_same_everywhere
from jaxcompress.distributed.mesh import data_mesh, initialize_processes, node_mesh, virtual_cpu_workers
from jaxcompress.distributed.placement import (
    as_block,
    init_state,
    own_part,
    replicate,
    reshard_workers,
    shard_batch,
    state_specs,
)
from jaxcompress.distributed.step import local_value_and_grad, make_train_step
from jaxcompress.distributed.virtual import VirtualMesh
from jaxcompress.expression import ExpressionError, parse, unparse
from jaxcompress.feedback.control_variate import control_variate
from jaxcompress.feedback.ef21 import ef21, ef21_sgdm
from jaxcompress.feedback.error_feedback import error_feedback
from jaxcompress.feedback.momentum_correction import momentum_correction
from jaxcompress.ops.memories import error_memory
from jaxcompress.optimizers.clip_by_local_norm import clip_by_local_norm
from jaxcompress.optimizers.dgc import decayed_weights_with_momentum, dgc, dgc_ladder
from jaxcompress.optimizers.onebit_adam import onebit_adam
from jaxcompress.optimizers.onebit_lamb import onebit_lamb
from jaxcompress.optimizers.zero_one_adam import zero_one_adam
from jaxcompress.routing.kinds import embeddings, first_and_last, norms_and_biases
from jaxcompress.routing.labels import by_path, by_shape, by_size, first_of
from jaxcompress.routing.partition import partition
from jaxcompress.routing.switch import switch
from jaxcompress.schedules.warmup import warmup
from jaxcompress.stats.collective import Collective, Traffic
from jaxcompress.stats.hlo_traffic import traffic_of_hlo
from jaxcompress.stats.jaxpr_traffic import traffic_of_jaxpr
from jaxcompress.stats.monitor import monitor, monitor_metrics
from jaxcompress.stats.traffic import traffic
from jaxcompress.transaction import skipped_steps, transaction
from jaxcompress.transform import compress

__all__ = [
    "compress",
    "transaction",
    "skipped_steps",
    "dgc",
    "clip_by_local_norm",
    "decayed_weights_with_momentum",
    "onebit_adam",
    "onebit_lamb",
    "zero_one_adam",
    "Reduced",
    "Codec",
    "Compressor",
    "PerWorker",
    "expressible",
    "dense",
    "gathered",
    "one_phase",
    "two_phase",
    "hierarchical",
    "whole_model",
    "sparse",
    "sparse_rows",
    "sketched",
    "top_k",
    "block_top_k",
    "block_max",
    "global_top_k",
    "threshold",
    "sampled_threshold",
    "random_k",
    "bernoulli",
    "importance_sampled",
    "block_sparse",
    "row_top_k",
    "column_top_k",
    "head_top_k",
    "shared_top_k",
    "arc_top_k",
    "qsgd",
    "nuqsgd",
    "terngrad",
    "natural",
    "int8",
    "int4",
    "int2",
    "float8",
    "cast",
    "sign",
    "sign_majority",
    "rotated",
    "power_sgd",
    "acp_sgd",
    "batched_power_sgd",
    "svd",
    "error_feedback",
    "momentum_correction",
    "ef21",
    "ef21_sgdm",
    "control_variate",
    "error_memory",
    "partition",
    "by_path",
    "by_shape",
    "by_size",
    "norms_and_biases",
    "embeddings",
    "first_and_last",
    "first_of",
    "switch",
    "dgc_ladder",
    "warmup",
    "monitor",
    "monitor_metrics",
    "traffic",
    "traffic_of_jaxpr",
    "traffic_of_hlo",
    "Collective",
    "Traffic",
    "parse",
    "unparse",
    "ExpressionError",
    "initialize_processes",
    "virtual_cpu_workers",
    "VirtualMesh",
    "data_mesh",
    "node_mesh",
    "init_state",
    "replicate",
    "shard_batch",
    "state_specs",
    "own_part",
    "as_block",
    "reshard_workers",
    "local_value_and_grad",
    "make_train_step",
    "assert_same_everywhere",
]
