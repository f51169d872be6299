"""How fast does a sharded model train over a slow network?"""
