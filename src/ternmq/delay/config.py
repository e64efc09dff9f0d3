"""What an operator may set for a delay server, besides what every member of a broker group has.

Types and limits stand with the fields and are checked by msgspec (`core/settings.py`). Never reads
a file or the environment: `node/config.py` does.
"""

from dataclasses import dataclass
from typing import Annotated

from ternmq.core.settings import about, check
from ternmq.core.units import DAY_MS, HOUR_MS, MINUTE_MS
from ternmq.replication.config import MemberConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayConfig(MemberConfig):
    """How a delay server keeps messages for later and sends them when they are due."""

    delay_wal_dir: Annotated[
        str, about("where the delay server writes first; empty: below `data_dir`")
    ] = ""
    delay_hour_ms: Annotated[
        int, about("how much time one schedule log of the delay server holds", MINUTE_MS, DAY_MS)
    ] = HOUR_MS
    delay_tick_ms: Annotated[
        int, about("how often the delay server looks for what is due", 10, 1_000)
    ] = 100
    delay_max_days: Annotated[
        int, about("how far ahead a message may be due; farther is refused", 1, 36_525)
    ] = 731
    delay_fragments: Annotated[
        int, about("parts of each hour, which wait for slow brokers apart from each other", 1, 256)
    ] = 8
    delay_workers: Annotated[
        int, about("parts that the delay server dispatches at the same time", 1, 64)
    ] = 2

    def __post_init__(self) -> None:
        check(self)
