"""What carries the calls: for now the asyncio server of the package grpcio."""
