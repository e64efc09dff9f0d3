"""Pages about people: who may do what, and who asks for more."""
