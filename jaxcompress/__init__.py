"""Gradient compression for data-parallel training in JAX: compressors that are links of an Optax chain."""

from jaxcompress.base import Codec, Compressor, PerWorker, Reduced, expressible
from jaxcompress.collectives.dense import dense
from jaxcompress.collectives.gathered import gathered
from jaxcompress.collectives.hierarchical import hierarchical
from jaxcompress.collectives.one_phase import one_phase
from jaxcompress.collectives.sketched import sketched
from jaxcompress.collectives.sparse import sparse
from jaxcompress.collectives.two_phase import two_phase
from jaxcompress.compressors.block_max import block_max
from jaxcompress.compressors.block_top_k import block_top_k
from jaxcompress.compressors.cast import cast
from jaxcompress.compressors.power_sgd import power_sgd
from jaxcompress.compressors.qsgd import qsgd
from jaxcompress.compressors.sign import sign
from jaxcompress.compressors.top_k import top_k
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
from jaxcompress.expression import ExpressionError, parse, unparse
from jaxcompress.feedback.error_feedback import error_feedback, error_memory
from jaxcompress.routing.labels import by_path, by_shape
from jaxcompress.routing.partition import partition
from jaxcompress.routing.switch import switch
from jaxcompress.schedules.warmup import warmup
from jaxcompress.stats.collective import Collective, Traffic
from jaxcompress.stats.hlo_traffic import traffic_of_hlo
from jaxcompress.stats.jaxpr_traffic import traffic_of_jaxpr
from jaxcompress.stats.monitor import monitor, monitor_metrics
from jaxcompress.stats.traffic import traffic
from jaxcompress.transform import compress

__all__ = [
    "compress",
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
    "sparse",
    "sketched",
    "top_k",
    "block_top_k",
    "block_max",
    "power_sgd",
    "qsgd",
    "sign",
    "cast",
    "error_feedback",
    "error_memory",
    "partition",
    "by_path",
    "by_shape",
    "switch",
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
