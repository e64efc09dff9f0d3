"""Calls of the gRPC kind: what a transport over HTTP/2 and the handlers above it agree on."""
