"""What the sink refuses before anything is run, each with one line (P2)."""

import pytest
from pyspark.sql import types

from ternmq.core.errors import BadRequest
from ternmq.pipeline.options import sink_options
from ternmq.pipeline.sink.sink import check_schema
from ternmq.pipeline.source.columns import full_schema

KINDS = {
    "bigint": types.LongType(),
    "binary": types.BinaryType(),
    "date": types.DateType(),
    "string": types.StringType(),
    "timestamp": types.TimestampType(),
    "map<string,int>": types.MapType(types.StringType(), types.IntegerType()),
    "map<string,string>": types.MapType(types.StringType(), types.StringType()),
}


def schema_of(text: str) -> types.StructType:
    pairs = [column.split() for column in text.split(", ")]
    return types.StructType([types.StructField(name, KINDS[kind]) for name, kind in pairs])


@pytest.mark.parametrize(
    ("schema", "topic", "said"),
    [
        ("key string", "t", "needs a column 'body'"),
        ("body string", "", "say where to"),
        ("body string, tags string", "t", "did you mean 'tag'"),
        ("body bigint", "t", "'body' is bigint; the tern sink takes binary or string"),
        ("body string, key binary", "t", "'key' is binary; the tern sink takes string"),
        ("body string, properties map<string,int>", "t", "takes map<string,string>"),
        ("body string, deliver_at date", "t", "takes timestamp"),
    ],
)
def test_a_frame_that_cannot_be_sent_is_refused(schema: str, topic: str, said: str) -> None:
    with pytest.raises(BadRequest, match=said):
        check_schema(schema_of(schema), topic)


def test_all_columns_are_taken() -> None:
    check_schema(
        schema_of(
            "topic string, body binary, key string, tag string, order_key string, id string, "
            "properties map<string,string>, born_at timestamp, deliver_at timestamp"
        ),
        "",
    )


def test_what_the_source_reads_can_be_written_as_it_is() -> None:
    """Its own columns are left out, and the option says where to, as Kafka's users know it."""
    check_schema(full_schema("messages", properties=True), "copy")
    check_schema(schema_of("body string, topic bigint, size string"), "copy")


@pytest.mark.parametrize(
    ("given", "streaming", "said"),
    [
        ({"topik": "t"}, False, "did you mean 'topic'"),
        ({"topic": "t", "jobId": "x"}, True, "leave jobId out"),
        ({"topic": "t", "jobId": "x" * 201}, False, "at most 200"),
        ({"topic": "t", "path": "x"}, False, "take no path"),
        ({"topic": "not a topic"}, False, "topic"),
    ],
)
def test_a_wrong_option_is_named(given: dict[str, str], streaming: bool, said: str) -> None:
    with pytest.raises(BadRequest, match=said):
        sink_options(given, streaming=streaming)


def test_options_of_spark_itself_are_let_through() -> None:
    found = sink_options({"TOPIC": "t", "checkpointLocation": "c"}, streaming=True)

    assert (found.topic, found.job_id) == ("t", "")
