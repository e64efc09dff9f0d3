"""The shape of every request and answer, one file per noun."""
