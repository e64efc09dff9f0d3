"""Walks through the code: which files one publish, pull, ack, retry, delay or copy really crosses.

`make walk` prints them (`ARGS="--only publish"` for one); a test holds ARCHITECTURE's step lists
against them. `trace.py` is the arithmetic, `tracer.py` listens to the interpreter, `journeys.py`
does one thing at a time on nodes in this process.
"""
