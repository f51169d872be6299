"""What does an error memory change?"""
