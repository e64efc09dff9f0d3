"""Connections of a server with security on: who comes in proves who it is, and does what it may."""
