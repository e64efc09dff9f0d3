"""Where names, ids, epochs and standings are kept: SQL or ZooKeeper."""
