"""The error that says that rows a query should read are gone."""

from ternmq.core.errors import TernError


class DataLoss(TernError):
    """Retention, a deleted topic or damage took rows before they were read."""

    code = "data_loss"
