"""The data directory of one broker: three logs, their recovery, and the disk behind an interface.

Synchronous. Disk and clock are handed in. Knows nothing of sockets, sessions or leases.
"""
