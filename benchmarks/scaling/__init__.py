"""When does compression pay, among many workers and over links of different speeds?"""
