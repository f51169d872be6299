"""What do compiled training steps send, hold in memory and overlap?"""
