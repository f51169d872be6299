"""Which learning rate suits dense training best?"""
