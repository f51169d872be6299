"""The accuracy of compressing shards, beside that of compressing whole arrays."""
