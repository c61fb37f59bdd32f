# SPDX-License-Identifier: MIT
"""What a failed call raises."""


class StrataError(RuntimeError):
    """A call of the library failed."""

    status: int
    """The code, one of strata.constants.ERR_*."""
    name: str
    """The code's name, for example "STRATA_ERR_FORMAT"."""
    detail: str
    """What is at fault, by name: file, tensor, layer, bytes."""

    def __init__(self, status: int, name: str, detail: str) -> None:
        super().__init__(f"{detail} ({name})" if detail else name)
        self.status = status
        self.name = name
        self.detail = detail


class Cancelled(StrataError):
    """The call was stopped by the caller; the session stays usable."""
