"""The columnar batch and the delivery envelope: one format for wire, disk, replicas and Spark."""
