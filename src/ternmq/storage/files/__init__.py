"""The disk and the small files of a data directory."""
