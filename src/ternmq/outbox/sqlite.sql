CREATE TABLE tern_outbox (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    message_id VARCHAR(26) NOT NULL,
    topic VARCHAR(127) NOT NULL,
    order_hash BIGINT,
    broker_group VARCHAR(127),
    content BLOB NOT NULL,
    created_ms BIGINT NOT NULL,
    ready_ms BIGINT NOT NULL,
    claimed_by VARCHAR(64),
    attempts INTEGER DEFAULT '0' NOT NULL,
    error TEXT
);
CREATE INDEX tern_outbox_message ON tern_outbox (message_id) WHERE broker_group IS NULL;
CREATE INDEX tern_outbox_order ON tern_outbox (order_hash, ready_ms, id);
CREATE INDEX tern_outbox_ready ON tern_outbox (ready_ms, id);
