"""The pages, one module per noun."""
