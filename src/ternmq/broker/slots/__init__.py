"""Order-key slots: which are stored on this broker, and which wait for another one."""
