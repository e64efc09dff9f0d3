"""Documents of the registry, and leases that decide who of several runs something."""
