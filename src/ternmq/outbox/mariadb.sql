CREATE TABLE tern_outbox (
    id BIGINT NOT NULL AUTO_INCREMENT,
    message_id VARCHAR(26) NOT NULL,
    topic VARCHAR(127) NOT NULL,
    order_hash BIGINT,
    broker_group VARCHAR(127),
    content LONGBLOB NOT NULL,
    created_ms BIGINT NOT NULL,
    ready_ms BIGINT NOT NULL,
    claimed_by VARCHAR(64),
    attempts INTEGER NOT NULL DEFAULT '0',
    error TEXT,
    PRIMARY KEY (id)
)ENGINE=InnoDB CHARSET=utf8mb4;
CREATE INDEX tern_outbox_message ON tern_outbox (message_id);
CREATE INDEX tern_outbox_order ON tern_outbox (order_hash, ready_ms, id);
CREATE INDEX tern_outbox_ready ON tern_outbox (ready_ms, id);
