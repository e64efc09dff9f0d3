"""What the roles of one server share: its context, its record of the group, its kind."""
