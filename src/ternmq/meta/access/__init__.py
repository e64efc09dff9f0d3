"""Users, grants, tokens and wrapped keys, as they are asked for."""
