"""Sockets around wire/: the accepting side (`server`) and the calling side (`connection`)."""
