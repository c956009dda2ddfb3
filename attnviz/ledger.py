"""Memory that is taken and let go in the order of a computation: what it holds at its peak. Loads no torch."""


class Ledger:
    """Add up the bytes that a computation holds, step by step, under the names of what they are.

    Attributes:
        now: Bytes held after the last step.
        most: The most that was held at once.
    """

    def __init__(self) -> None:
        self.now = self.most = 0
        self._held: dict[str, int] = {}

    def take(self, **sizes: int) -> None:
        """Take memory, one thing after the other, each under a name that is free."""
        for name, size in sizes.items():
            if name in self._held:
                raise ValueError(f"{name} is held already")
            self._held[name] = size
            self.now += size
            self.most = max(self.most, self.now)

    def drop(self, *names: str) -> None:
        """Let things go; what is not held, because it never needed memory of its own, counts for nothing."""
        for name in names:
            self.now -= self._held.pop(name, 0)

    def holds(self, name: str) -> bool:
        """Say whether something is held under a name."""
        return name in self._held

    def touch(self, size: int) -> None:
        """Take and let go at once."""
        self.most = max(self.most, self.now + size)

    def copy(self, name: str) -> None:
        """Put a copy in a thing's place: for a moment both exist."""
        self.touch(self._held[name])
