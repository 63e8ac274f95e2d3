"""numba's cache of compiled functions, told of every file that a function is compiled from.

numba looks for changes in a function's own file only, but compiled code holds what it took from
other files. What numba also compares are the values in a function's closure: `cached` puts a
fingerprint of those files there, so code from an older version of them is not taken from the cache.
Small functions that read other files need not be cached at all: they compile into those that are.
"""

from __future__ import annotations

import inspect
import zlib
from collections.abc import Callable
from types import CellType, FunctionType, ModuleType
from typing import TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., object])


def fingerprint(*modules: ModuleType) -> int:
    """A number that changes with the modules' text."""
    return zlib.crc32("".join(map(inspect.getsource, modules)).encode())


def cached(
    *sources: ModuleType, nogil: bool = False, parallel: bool = False
) -> Callable[[Function], Function]:
    """numba's `njit`, cached, for a function that is also compiled from the text of `sources`."""
    from numba import njit

    cell = CellType(fingerprint(*sources))

    def compiled(function: Function) -> Function:
        plain = cast(FunctionType, function)
        assert not plain.__code__.co_freevars, "its closure is the fingerprint's"
        code = plain.__code__.replace(co_freevars=("sources",))
        known = FunctionType(
            code, plain.__globals__, plain.__name__, plain.__defaults__, closure=(cell,)
        )
        known.__qualname__, known.__doc__ = plain.__qualname__, plain.__doc__
        compile = njit(cache=True, error_model="numpy", nogil=nogil, parallel=parallel)
        return cast(Function, compile(known))

    return compiled
