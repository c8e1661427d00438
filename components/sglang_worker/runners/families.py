"""Which family of linear attention a runner belongs to."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum


class Family(str, Enum):
    GDN = "gdn"
    KDA = "kda"
    LIGHTNING = "lightning"
    MAMBA2 = "mamba2"
    SHORT_CONV = "short_conv"

    @property
    def reads_stamp(self) -> bool:
        """Only the GDN and KDA backends take their kernels from the stamp."""
        return self in (Family.GDN, Family.KDA)


# The most derived name decides, so a subclass (Ascend's, XPU's, a platform's) finds its base.
_FAMILY_OF_BACKEND = {
    "GDNAttnBackend": Family.GDN,
    "AscendGDNAttnBackend": Family.GDN,
    "KDAAttnBackend": Family.KDA,
    "LightningAttentionBackend": Family.LIGHTNING,
    "Mamba2AttnBackend": Family.MAMBA2,
    "AscendMamba2AttnBackend": Family.MAMBA2,
    "ShortConvAttnBackend": Family.SHORT_CONV,
}


def family_of_backend(class_names: Iterable[str]) -> Family | None:
    """The family of a linear backend, from the class names of its method resolution order."""
    for name in class_names:
        family = _FAMILY_OF_BACKEND.get(name)
        if family is not None:
            return family
    return None
