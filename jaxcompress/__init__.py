"""Gradient compression for data-parallel training in JAX, as one link of an Optax chain."""

from jaxcompress import contrib
from jaxcompress.apply_if_all_finite import apply_if_all_finite, skipped_steps
from jaxcompress.base import Call, Codec, Compressor, PerWorker, Reduced, parseable, walk
from jaxcompress.collectives.dense import dense
from jaxcompress.collectives.gathered import gathered
from jaxcompress.collectives.hierarchical import hierarchical
from jaxcompress.collectives.one_phase import one_phase
from jaxcompress.collectives.two_phase import two_phase
from jaxcompress.compressors.builders.linear import linear
from jaxcompress.compressors.builders.sparse import sparse
from jaxcompress.compressors.builders.sparse_rows import sparse_rows
from jaxcompress.compressors.low_rank.acp_sgd import acp_sgd
from jaxcompress.compressors.low_rank.power_sgd import batched_power_sgd, power_sgd
from jaxcompress.compressors.quantisers.cast import cast
from jaxcompress.compressors.quantisers.eden import eden
from jaxcompress.compressors.quantisers.float8 import float8
from jaxcompress.compressors.quantisers.int_sum import int_sum
from jaxcompress.compressors.quantisers.integer import int2, int4, int8
from jaxcompress.compressors.quantisers.lloyd_max import lloyd_max
from jaxcompress.compressors.quantisers.natural import natural
from jaxcompress.compressors.quantisers.qsgd import qsgd
from jaxcompress.compressors.quantisers.rotated import rotated
from jaxcompress.compressors.quantisers.sign import sign
from jaxcompress.compressors.quantisers.terngrad import terngrad
from jaxcompress.compressors.sparsifiers.block_max import block_max
from jaxcompress.compressors.sparsifiers.block_sparse import block_sparse
from jaxcompress.compressors.sparsifiers.block_top_k import block_top_k
from jaxcompress.compressors.sparsifiers.column_top_k import column_top_k
from jaxcompress.compressors.sparsifiers.dct import dct
from jaxcompress.compressors.sparsifiers.global_top_k import global_top_k
from jaxcompress.compressors.sparsifiers.random_k import random_k
from jaxcompress.compressors.sparsifiers.row_top_k import row_top_k
from jaxcompress.compressors.sparsifiers.shared_top_k import shared_top_k
from jaxcompress.compressors.sparsifiers.threshold import threshold
from jaxcompress.compressors.sparsifiers.top_k import top_k
from jaxcompress.distributed.equality import assert_equal_across_processes
from jaxcompress.distributed.jax_settings import numeric_settings
from jaxcompress.distributed.joining import initialize_processes
from jaxcompress.distributed.mesh import data_mesh, hybrid_mesh, node_mesh, virtual_cpu_workers
from jaxcompress.distributed.placement import (
    expand_worker_axis,
    init_state,
    replicate,
    shard_batch,
    squeeze_worker_axis,
)
from jaxcompress.distributed.process_errors import is_connection_error
from jaxcompress.distributed.replicas import assert_replicas_equal
from jaxcompress.distributed.resharding import place_state, reshard_workers
from jaxcompress.distributed.shards import PerShard, on_shards
from jaxcompress.distributed.specs import state_shardings, state_specs
from jaxcompress.distributed.step import local_value_and_grad, make_train_step
from jaxcompress.distributed.virtual import VirtualMesh
from jaxcompress.distributed.watchdog import Watchdog
from jaxcompress.distributed.worker_key import worker_key
from jaxcompress.feedback.control_variate import control_variate
from jaxcompress.feedback.ef21 import ef21, ef21_sgdm
from jaxcompress.feedback.error_feedback import error_feedback
from jaxcompress.feedback.momentum_correction import momentum_correction
from jaxcompress.notation import ExpressionError, parse, unparse
from jaxcompress.optimizers.clip_by_local_norm import clip_by_local_norm
from jaxcompress.optimizers.demo import demo
from jaxcompress.optimizers.dgc import add_decayed_weights_with_momentum, dgc, dgc_warmup
from jaxcompress.optimizers.onebit_adam import onebit_adam, scale_by_onebit_adam
from jaxcompress.periods.gossip import gossip
from jaxcompress.periods.local_step import (
    make_flush,
    make_local_step,
    mean_over_workers,
    rows_of_workers,
)
from jaxcompress.periods.local_updates import local_updates
from jaxcompress.periods.methods import diloco, local_sgd, mu_loco, no_loco, sparse_loco
from jaxcompress.periods.own_steps import worker_params
from jaxcompress.periods.pair_rules import PairRule, pair_mean
from jaxcompress.periods.power_gossip import power_gossip
from jaxcompress.periods.streaming import streaming
from jaxcompress.periods.streaming_average import make_streaming_average
from jaxcompress.planning.choice import Plan
from jaxcompress.planning.link_rate import measure_bandwidth
from jaxcompress.planning.links import Links, ideal_links
from jaxcompress.planning.measure import measure
from jaxcompress.planning.plan import plan
from jaxcompress.profiling.collective import Collective, Traffic
from jaxcompress.profiling.error_memory import error_memory
from jaxcompress.profiling.hlo_traffic import traffic_of_hlo
from jaxcompress.profiling.jaxpr_traffic import traffic_of_jaxpr
from jaxcompress.profiling.monitor import monitor, monitor_metrics
from jaxcompress.profiling.sensitivity import sensitivity
from jaxcompress.profiling.traffic import traffic
from jaxcompress.routing.adaptive import adaptive
from jaxcompress.routing.adaptive_states import AdaptiveState, levels
from jaxcompress.routing.kinds import embeddings, first_and_last, norms_and_biases
from jaxcompress.routing.labels import by_path, by_shape, by_size, first_label
from jaxcompress.routing.partition import partition
from jaxcompress.routing.switch import switch
from jaxcompress.routing.whole_model import whole_model
from jaxcompress.rules.accordion import accordion
from jaxcompress.rules.accuracy import accuracy
from jaxcompress.rules.bandwidth import bandwidth
from jaxcompress.rules.gain import gain
from jaxcompress.rules.gradient_norm import gradient_norm
from jaxcompress.rules.rule import Rule, Statistics
from jaxcompress.rules.scheduled import schedule
from jaxcompress.schedules.warmup import warmup
from jaxcompress.transform import compress

__all__ = [
    "contrib",
    "compress",
    "apply_if_all_finite",
    "skipped_steps",
    "dgc",
    "clip_by_local_norm",
    "add_decayed_weights_with_momentum",
    "onebit_adam",
    "scale_by_onebit_adam",
    "demo",
    "local_updates",
    "local_sgd",
    "diloco",
    "sparse_loco",
    "mu_loco",
    "streaming",
    "gossip",
    "no_loco",
    "pair_mean",
    "power_gossip",
    "PairRule",
    "worker_params",
    "make_local_step",
    "make_streaming_average",
    "make_flush",
    "rows_of_workers",
    "mean_over_workers",
    "Reduced",
    "Codec",
    "Compressor",
    "PerWorker",
    "Call",
    "walk",
    "parseable",
    "dense",
    "gathered",
    "one_phase",
    "two_phase",
    "hierarchical",
    "whole_model",
    "sparse",
    "sparse_rows",
    "linear",
    "top_k",
    "block_top_k",
    "block_max",
    "global_top_k",
    "threshold",
    "random_k",
    "block_sparse",
    "row_top_k",
    "column_top_k",
    "shared_top_k",
    "dct",
    "qsgd",
    "terngrad",
    "natural",
    "int8",
    "int4",
    "int2",
    "int_sum",
    "float8",
    "cast",
    "sign",
    "rotated",
    "lloyd_max",
    "eden",
    "power_sgd",
    "acp_sgd",
    "batched_power_sgd",
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
    "first_label",
    "switch",
    "adaptive",
    "levels",
    "AdaptiveState",
    "Rule",
    "Statistics",
    "accordion",
    "gradient_norm",
    "gain",
    "bandwidth",
    "accuracy",
    "schedule",
    "sensitivity",
    "dgc_warmup",
    "warmup",
    "measure_bandwidth",
    "measure",
    "ideal_links",
    "Links",
    "plan",
    "Plan",
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
    "numeric_settings",
    "virtual_cpu_workers",
    "VirtualMesh",
    "data_mesh",
    "node_mesh",
    "init_state",
    "replicate",
    "shard_batch",
    "state_shardings",
    "state_specs",
    "squeeze_worker_axis",
    "expand_worker_axis",
    "reshard_workers",
    "place_state",
    "local_value_and_grad",
    "make_train_step",
    "hybrid_mesh",
    "on_shards",
    "worker_key",
    "PerShard",
    "assert_equal_across_processes",
    "assert_replicas_equal",
    "Watchdog",
    "is_connection_error",
]
