CREATE TABLE tern_inbox (
    id BLOB NOT NULL,
    group_name VARCHAR(127) NOT NULL,
    message_key VARCHAR(255) NOT NULL,
    handled_ms BIGINT NOT NULL,
    working_until_ms BIGINT DEFAULT '0' NOT NULL,
    PRIMARY KEY (id)
);
CREATE INDEX tern_inbox_handled ON tern_inbox (handled_ms);
