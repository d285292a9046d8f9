"""Packed bits: frosh and FAISS store the least significant bit first; usearch, pgvector and NumPy's default the most
significant bit first."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

_SWAPPED = np.array([int(f"{byte:08b}"[::-1], 2) for byte in range(256)], dtype=np.uint8)


def unpack(codes: ArrayLike, n_bits: int) -> NDArray[np.uint8]:
    """The bits of packed codes, one column for each bit.

    >>> unpack(np.array([[0b101]], np.uint8), 4)
    array([[1, 0, 1, 0]], dtype=uint8)
    """
    codes = _packed(codes)
    if not 0 < n_bits <= 8 * codes.shape[1]:
        raise ValueError(f"n_bits = {n_bits} is not possible: the codes have {codes.shape[1]} bytes")
    return np.unpackbits(codes, axis=1, count=n_bits, bitorder="little")


def pack(bits: ArrayLike) -> NDArray[np.uint8]:
    """Packed codes of a matrix of bits (0 or 1): the opposite of `unpack`.

    >>> pack([[1, 0, 1, 0]])
    array([[5]], dtype=uint8)
    """
    bits = np.asarray(bits)
    if bits.ndim != 2:
        raise ValueError(f"expected 2 dimensions, got {bits.ndim}")
    return np.packbits(bits.astype(bool), axis=1, bitorder="little")


def swap_bit_order(codes: ArrayLike) -> NDArray[np.uint8]:
    """The codes with the bits of each byte in the opposite order: what usearch, pgvector and `numpy.packbits` expect.

    Hamming distances stay the same. Codes of both kinds must not be mixed.

    >>> swap_bit_order(np.array([[0b00000001]], np.uint8))
    array([[128]], dtype=uint8)
    """
    return _SWAPPED[_packed(codes)]


def _packed(codes: ArrayLike) -> NDArray[np.uint8]:
    array = np.asarray(codes)
    if array.dtype != np.uint8 or array.ndim != 2:
        raise ValueError(f"expected packed codes, a uint8 matrix, got {array.dtype} of {array.ndim} dimensions")
    return array
