"""Who may come in, how that is proven, and how what is sent is kept from others."""
