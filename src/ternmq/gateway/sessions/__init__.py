"""Who is there: clients with their settings and streams, and what consumers hold."""
