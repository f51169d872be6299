"""How far does training get, for how many bytes?"""
