"""The version of this package, written here and nowhere else; `pyproject.toml` reads it from here.

A constant and not the metadata of an installed package: the sources also run where nothing is
installed, as on a Spark executor that got them in an archive.
"""

VERSION = "0.1.0"
