CREATE TABLE tern_inbox (
    id BINARY(32) NOT NULL,
    group_name VARCHAR(127) NOT NULL,
    message_key VARCHAR(255) NOT NULL,
    handled_ms BIGINT NOT NULL,
    working_until_ms BIGINT NOT NULL DEFAULT '0',
    PRIMARY KEY (id)
)ENGINE=InnoDB CHARSET=utf8mb4;
CREATE INDEX tern_inbox_handled ON tern_inbox (handled_ms);
