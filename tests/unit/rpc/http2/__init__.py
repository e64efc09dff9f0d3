"""The HTTP/2 layer under gRPC calls: its parts, its bounds, and grpcio as the judge of both."""
