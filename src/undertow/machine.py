"""What the last digits of a run depend on, beyond its calls and its seed."""

import platform

import llvmlite
import numba
import numpy as np
import scipy
from numba.core.registry import cpu_target

import undertow
from undertow.compiled.cache import source_stamp

__all__ = ["fingerprint"]


def fingerprint() -> dict[str, str]:
    """Return what a replay has to have in common with a run to agree with it bit for bit.

    Versions of undertow and of what it computes with, a hash of the sources that kernels are compiled from, whether
    they are compiled ("on") or run as Python ("off", with NUMBA_DISABLE_JIT=1), and for which processor. Where two
    fingerprints are equal, the same calls give the same bits; where they differ, the entries that differ say why the
    last digits may.

    Examples
    --------
    >>> import undertow
    >>> list(undertow.fingerprint())
    ['undertow', 'sources', 'python', 'numpy', 'scipy', 'numba', 'llvmlite', 'jit',
     'system', 'processor', 'features']
    """
    triple, processor, features = cpu_target.target_context.codegen().magic_tuple()
    return {
        "undertow": undertow.__version__,
        "sources": source_stamp("undertow.policies"),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "numba": numba.__version__,
        "llvmlite": llvmlite.__version__,
        "jit": "off" if numba.config.DISABLE_JIT else "on",
        "system": " ".join([triple, *platform.libc_ver()]).strip(),
        "processor": processor,
        "features": features,
    }
