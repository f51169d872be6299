"""What do faults of processes, links, disks and memories cost a run?"""
