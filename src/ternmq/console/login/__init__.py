"""Who may come in: sessions, logins by password or issuer, and the door before every request."""
