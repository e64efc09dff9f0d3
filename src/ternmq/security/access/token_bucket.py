"""Token buckets: how much of something may pass a second. Pure; the moment is handed in.

A bucket fills with `rate` tokens a second up to one second's worth (at least `BURST_MIN`).
Whatever comes passes while there is a token left, however large it is, and may leave the bucket in
debt: then everybody waits until the debt is paid. So the average never exceeds the rate by more
than one second's worth and one batch, a batch larger than the bucket is not stuck for ever, and
small ones cannot keep a large one out. O(1) for a batch of any size.
"""

SHUT_MIN_S = 0.05
"""Who is refused is told to wait at least so long, and nobody passes before.

So what a producer sent behind a refused batch is refused too, and it repeats them in order.
"""


BURST_MIN = 4


class TokenBucket:
    """Tokens of one kind."""

    __slots__ = ("_at", "_level", "_rate")

    def __init__(self, rate: int, now: float) -> None:
        self._rate = rate
        self._level = _burst(rate)
        self._at = now

    def change(self, rate: int, now: float) -> None:
        """Another rate from now on; a debt stays one and is paid back at the new rate."""
        self._fill(now)
        self._rate = rate
        self._level = min(self._level, _burst(rate))

    def wait_s(self, now: float, least: int = 0) -> float:
        """Seconds until there are more than `least` tokens; 0 if there are."""
        self._fill(now)
        return 0.0 if self._level > least else (least - self._level) / self._rate + 0.001

    def take(self, amount: int) -> None:
        self._level -= amount

    def left(self) -> int:
        """Whole tokens, at least one while something may pass."""
        return max(1, int(self._level))

    def _fill(self, now: float) -> None:
        passed = now - self._at
        if passed > 0:
            self._at = now
            self._level = min(_burst(self._rate), self._level + passed * self._rate)


class Gate:
    """Messages a second and bytes a second, either of them perhaps without a limit."""

    __slots__ = ("_bytes_rate", "_messages", "_rate", "_shut_until", "_size")

    def __init__(self) -> None:
        self._rate = self._bytes_rate = 0
        self._messages: TokenBucket | None = None
        self._size: TokenBucket | None = None
        self._shut_until = 0.0

    def change(self, rate: int, bytes_rate: int, now: float) -> None:
        """Other limits from now on; 0 means none. Nothing happens if they are the same."""
        if rate == self._rate and bytes_rate == self._bytes_rate:
            return
        self._messages = with_rate(self._messages, rate, now)
        self._size = with_rate(self._size, bytes_rate, now)
        self._rate, self._bytes_rate = rate, bytes_rate
        self._shut_until = 0.0

    def wait_s(self, now: float, least: int = 0) -> float:
        """Seconds until something may pass (more than `least` messages); 0 if it may now."""
        if now < self._shut_until:
            return self._shut_until - now
        wait = self._messages.wait_s(now, least) if self._messages is not None else 0.0
        if self._size is not None:
            wait = max(wait, self._size.wait_s(now))
        return wait

    def refuse(self, wait_s: float, now: float) -> float:
        """A request is turned away: how long it has to wait. Until then the bucket stays shut."""
        wait_s = max(wait_s, SHUT_MIN_S)
        self._shut_until = max(self._shut_until, now + wait_s)
        return wait_s

    def take(self, rows: int, size: int) -> None:
        """Something passed."""
        if self._messages is not None:
            self._messages.take(rows)
        if self._size is not None:
            self._size.take(size)

    def room(self, rows_max: int, size_max: int) -> tuple[int, int]:
        """How much of what is wanted may pass without a debt; at least one row and byte."""
        if self._messages is not None:
            rows_max = min(rows_max, self._messages.left())
        if self._size is not None:
            size_max = min(size_max, self._size.left())
        return rows_max, size_max


def _burst(rate: int) -> float:
    return float(max(rate, BURST_MIN))


def with_rate(bucket: TokenBucket | None, rate: int, now: float) -> TokenBucket | None:
    """The bucket at this rate, new where there is none; None without a limit."""
    if not rate:
        return None
    if bucket is None:
        return TokenBucket(rate, now)
    bucket.change(rate, now)
    return bucket
