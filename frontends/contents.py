"""The tensors of a file, by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Generic, TypeVar

Tensor = TypeVar("Tensor")


class Contents(Mapping[str, Tensor], Generic[Tensor]):
    """A mapping that names its file where it has no such tensor."""

    path: Path
    _tensors: dict[str, Tensor]

    def __getitem__(self, name: str) -> Tensor:
        try:
            return self._tensors[name]
        except KeyError:
            raise KeyError(f"{self.path.name} has no tensor {name!r}; it has {len(self._tensors)} others") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)
