"""The resources of `/api/v1`, one module per noun."""
