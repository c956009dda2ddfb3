"""What every test runs under: axes checked at each call, one torch thread, fixed seeds."""

import random
import sys

import numpy as np
import pytest
from jaxtyping import install_import_hook

# Before the first import of attnviz: the hook rewrites modules as they are loaded.
install_import_hook("attnviz", "beartype.beartype")


@pytest.fixture(autouse=True)
def _repeatable() -> None:
    """Seed every generator and keep torch on one thread; torch is left alone where a test does not load it."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - libraries under test may draw from the old generator
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(0)
        torch.set_num_threads(1)
