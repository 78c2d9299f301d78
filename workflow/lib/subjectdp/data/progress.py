"""How much of a long piece of work is done, logged every few seconds."""

import logging
import time

_SECONDS_BETWEEN_LINES = 5.0


class Progress:
    """Counts work done, in bytes or files; ``total`` None: unknown."""

    def __init__(self, logger: logging.Logger, label: str, total: int | None):
        self._logger, self._label, self._total = logger, label, total
        self._last, self.count = time.monotonic(), 0

    def add(self, amount: int) -> None:
        """Records ``amount`` more, and logs a line if the last one is some seconds old."""
        self.count += amount
        if time.monotonic() - self._last >= _SECONDS_BETWEEN_LINES:
            self.finish()

    def finish(self) -> None:
        """Logs a line now."""
        self._last = time.monotonic()
        share = f" of {self._total:,} ({100 * self.count / self._total:.0f} %)" if self._total else ""
        self._logger.info(f"{self._label}: {self.count:,}{share}")
