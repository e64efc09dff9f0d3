"""Figures for Prometheus: which there are, how they are gathered, the page that shows them."""
