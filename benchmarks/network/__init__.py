"""How long does it take to average gradients over a slow network, compressed and not?"""
