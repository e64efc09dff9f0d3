"""The names of spans, attributes and metrics: OpenTelemetry's conventions for messaging, 1.44.

They are still in development, so they stand in one place.
"""

SYSTEM = "messaging.system"
SYSTEM_NAME = "ternmq"
OPERATION = "messaging.operation.name"
OPERATION_TYPE = "messaging.operation.type"
DESTINATION = "messaging.destination.name"
BROKER_GROUP = "messaging.destination.partition.id"
GROUP = "messaging.consumer.group.name"
MESSAGE_ID = "messaging.message.id"
COUNT = "messaging.batch.message_count"
ERROR = "error.type"
ATTEMPT = "ternmq.attempt"

SENT = "messaging.client.sent.messages"
CONSUMED = "messaging.client.consumed.messages"
OPERATION_SECONDS = "messaging.client.operation.duration"
PROCESS_SECONDS = "messaging.process.duration"
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)

LINKS_MAX = 128
