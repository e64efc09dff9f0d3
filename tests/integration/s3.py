"""A local S3 server with one bucket, for tests of archives that lie there."""

import os
from collections.abc import Iterator

import pytest


@pytest.fixture
def s3() -> Iterator[str]:
    """A local S3 server with one bucket; yields an archive url."""
    from moto.server import ThreadedMotoServer

    os.environ["AWS_ACCESS_KEY_ID"] = os.environ["AWS_SECRET_ACCESS_KEY"] = "testing"
    server = ThreadedMotoServer(port=0)
    server.start()
    _, port = server.get_host_and_port()
    try:
        import boto3

        client = boto3.client(
            "s3", endpoint_url=f"http://127.0.0.1:{port}", region_name="us-east-1"
        )
        client.create_bucket(Bucket="lake")
        yield f"s3://lake/archive?endpoint_override=127.0.0.1%3A{port}&scheme=http&region=us-east-1"
    finally:
        server.stop()
