"""How accurate is training with compressed gradients, and how many bytes does it send?"""
