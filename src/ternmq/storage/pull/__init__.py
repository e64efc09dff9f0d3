"""The pull log: what groups were handed, acked, and what was decided."""
