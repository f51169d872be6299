"""Does training with every scheme learn, and how much does each send?"""
