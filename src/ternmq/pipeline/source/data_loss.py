"""The error of a query whose rows are gone."""

from ternmq.core.errors import TernError


class DataLoss(TernError):
    """Retention, a deleted topic or damage took rows before they were read."""

    code = "data_loss"
