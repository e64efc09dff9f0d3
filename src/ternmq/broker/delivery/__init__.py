"""PULL and READ: which rows a consumer or reader gets, and how they travel."""
