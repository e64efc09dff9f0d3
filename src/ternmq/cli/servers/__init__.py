"""Commands about servers: broker, meta, doctor, bench."""
