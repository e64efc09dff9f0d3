"""A server of a group: joins, records how the group stands, switches roles."""
