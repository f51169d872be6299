"""Accuracy when each device compresses its shard, compared with compressing whole arrays."""
