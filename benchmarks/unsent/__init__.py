"""Which values of `unsent_energy` are normal while training?"""
