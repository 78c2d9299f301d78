"""One-line progress with an ETA, logged at most every few seconds (readable in a file as well)."""

import logging
import time

_SECONDS_BETWEEN_LINES = 5.0


class Progress:
    """Counts work done and logs a line every few seconds; ``total`` None: unknown, no ETA."""

    def __init__(self, logger: logging.Logger, label: str, total: int | None, unit: str, scale: float = 1.0):
        """``unit`` names the shown quantity, which is the counted one divided by ``scale``."""
        self._logger, self._label, self._total = logger, label, total
        self._unit, self._scale = unit, scale
        self._started = self._last = time.monotonic()
        self.count = 0

    def add(self, amount: int) -> None:
        """Records ``amount`` more, and logs a line if the last one is some seconds old."""
        self.count += amount
        if time.monotonic() - self._last >= _SECONDS_BETWEEN_LINES:
            self._last = time.monotonic()
            self._logger.info(self.line())

    def finish(self) -> None:
        """Logs the closing line."""
        self._logger.info(self.line())

    def line(self) -> str:
        """The line as it stands now."""
        seconds = max(time.monotonic() - self._started, 1e-9)
        rate = self.count / seconds
        text = f"{self._label}: {self._shown(self.count)}"
        if self._total is not None and self._total > 0:
            text += f" of {self._shown(self._total)} ({100 * self.count / self._total:.0f} %)"
        text += f" {self._unit}, {self._shown(rate)} {self._unit}/s"
        if self._total is not None and rate > 0 and self.count < self._total:
            text += f", ETA {format_seconds((self._total - self.count) / rate)}"
        return text

    def _shown(self, amount: float) -> str:
        return f"{amount / self._scale:,.1f}" if self._scale != 1.0 else f"{amount:,.0f}"


def format_seconds(seconds: float) -> str:
    """``75`` -> ``1 min 15 s``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
