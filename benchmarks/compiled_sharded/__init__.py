"""What does the training step of a sharded transformer send over the slow axis, and hold?"""
