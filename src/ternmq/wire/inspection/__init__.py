"""Messages of looks: what became of single messages, who holds them, who is connected."""
