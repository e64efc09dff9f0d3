"""The delay server: keeps messages until they are due, then hands them to a broker."""
