"""TLS 1.3 for every connection: settings, contexts, reloading, and who a certificate names."""
