"""The machine's part in the last digits of a run."""

import platform

import llvmlite
import numba
import numpy as np
import scipy
from numba.core.registry import cpu_target

from undertow.compiled.cache import source_stamp
from undertow.support.version import VERSION

__all__ = ["fingerprint"]


def fingerprint() -> dict[str, str]:
    """Return a fingerprint: runs with equal ones and the same calls are bit-identical.

    Versions of undertow and its numerical dependencies, a hash of the sources that kernels are compiled from, whether
    they are compiled ("on") or run as Python ("off", with NUMBA_DISABLE_JIT=1), and for which processor. If two
    fingerprints differ, the entries that differ say why the last digits may.

    Examples
    --------
    >>> import undertow
    >>> list(undertow.fingerprint())
    ['undertow', 'sources', 'python', 'numpy', 'scipy', 'numba', 'llvmlite', 'jit',
     'system', 'processor', 'features']
    """
    triple, processor, features = cpu_target.target_context.codegen().magic_tuple()
    return {
        "undertow": VERSION,
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
