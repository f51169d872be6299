"""How long does compression take on one device?"""
