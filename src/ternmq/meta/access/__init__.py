"""Users, grants and tokens, as operators ask for them."""
