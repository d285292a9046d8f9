//! The vector traits, one for each kind of element. A kernel is written once against such a trait; the
//! instruction sets implement it.
//!
//! | trait | elements | is implemented by | used by |
//! |---|---|---|---|
//! | [`F32Vector`] | `f32` | registers | [`hadamard`](super::hadamard), [`scatter`](super::scatter), [`project`](super::project), [`elementwise`](super::elementwise) |
//! | [`F64Vector`] | `f64` | tokens | the eigensolver |
//! | [`F32x16`](super::sixteen::F32x16) | `f32` | tokens | the quantiser's encoding |
//! | [`ByteVector`] | `u8` | 64 bytes in registers | [`nibble_planes`](super::nibble_planes) |
//! | [`RowBlock`], [`Distances`] | codes | a query in registers | [`hamming`](super::hamming) |
//!
//! Methods of all but [`F64Vector`] are unsafe to call: the CPU must have the features of the implementing type, and
//! pointers must be valid for as many elements as the method reads or writes. All methods are `inline(always)`, so that
//! they become part of the function that enables the features.

use super::nibble_planes::Line;

/// A register of floats.
pub(crate) trait F32Vector: Copy {
    /// Floats in the register.
    const LANES: usize;
    unsafe fn load(from: *const f32) -> Self;
    unsafe fn store(self, to: *mut f32);
    unsafe fn splat(value: f32) -> Self;
    unsafe fn add(self, other: Self) -> Self;
    unsafe fn sub(self, other: Self) -> Self;
    unsafe fn mul(self, other: Self) -> Self;
    /// `self * factor + addend`
    unsafe fn mul_add(self, factor: Self, addend: Self) -> Self;
    /// `addend - self * factor`
    unsafe fn neg_mul_add(self, factor: Self, addend: Self) -> Self;
    /// Lane by lane the larger of `self` and the magnitude bits of `x`, both as integers.
    unsafe fn max_bits(self, x: Self) -> Self;
    /// The largest lane, as an integer.
    unsafe fn largest(self) -> u32;
    /// One bit for each lane, least significant first: is the lane above zero?
    unsafe fn positive(self) -> u32;
    /// Prefetches the cache line at `_at`, which may be any address.
    #[inline(always)]
    unsafe fn prefetch(_at: *const f32) {}
}

/// The bits of an `f32` without its sign.
pub(super) const MAGNITUDE: u32 = 0x7fff_ffff;

/// Lanes of an [`F64Vector`].
pub(crate) const LANES: usize = 4;
/// Four neighbouring numbers in memory.
pub(crate) type F64x4 = [f64; LANES];

/// Operations on vectors of four `f64`. A token implements it: its methods are safe, since to hold the token is the proof
/// that the CPU has the features. Masks and counts are kept in the bits of a `V`.
pub(crate) trait F64Vector: Copy + Send + Sync {
    type V: Copy;
    /// Runs `f` with the features enabled, so that everything inlines into it.
    fn run<R>(self, f: impl FnOnce() -> R) -> R;
    fn splat(self, x: f64) -> Self::V;
    fn load(self, x: &F64x4) -> Self::V;
    fn store(self, x: Self::V, to: &mut F64x4);
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b + c`
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// `c - a * b`
    fn fnma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    fn abs(self, a: Self::V) -> Self::V;
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// A mask of `a < b`.
    fn lt(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a` where the mask holds, else `b`.
    fn select(self, mask: Self::V, a: Self::V, b: Self::V) -> Self::V;
    /// For each of four vectors, the sum of its lanes.
    fn sums(self, x: [Self::V; LANES]) -> Self::V;
    /// Adds one to the integer lanes of `count` where `a` and `b` differ in sign.
    fn count_sign_change(self, count: Self::V, a: Self::V, b: Self::V) -> Self::V;
    /// The power of two that brings `a` into [1, 2); 2^1023 if `a` is zero or subnormal.
    fn to_unit(self, a: Self::V) -> Self::V;
}

/// The exponent bits of an `f64`.
pub(super) const EXPONENT: u64 = 0x7ff0_0000_0000_0000;
/// The reciprocal of a power of two with biased exponent `e` has the biased exponent `2046 - e`, finite down to 0.
pub(super) const RECIPROCAL: u64 = 2046 << 52;

/// A [`Line`] in registers: a byte for each of 64 rows.
pub(crate) trait ByteVector: Copy {
    unsafe fn load(line: &Line) -> Self;
    unsafe fn store(self) -> Line;
    unsafe fn splat(byte: u8) -> Self;
    /// The same lines, but the compiler does not know it: it loads them again rather than keep them in registers.
    /// For instruction sets with too few registers for both lines and sums.
    #[inline(always)]
    unsafe fn reload<T>(lines: &T) -> &T {
        lines
    }
    /// The table's entry for each byte; bytes are below 16.
    unsafe fn look_up(self, table: &[u8; 16]) -> Self;
    /// The table's entry for each byte.
    unsafe fn look_up_byte(self, table: &[u8; 256]) -> Self;
    /// The sums, none of which may exceed 255.
    unsafe fn add(self, other: Self) -> Self;
    unsafe fn saturating_add(self, other: Self) -> Self;
    unsafe fn and(self, other: Self) -> Self;
    /// The lower and the upper nibble of each byte.
    unsafe fn nibbles(self) -> [Self; 2];
    /// A bit for each byte that is not 255.
    unsafe fn not_255(self) -> u64;
    /// Runs `kernel` with the [`RowBlock`] for codes of `width` bytes, or its scalar twin where there is none.
    unsafe fn with_row_block<K: RowKernel>(width: usize, kernel: K) -> K::Output;
}

/// A query in registers, ready to be compared with rows of its width.
pub(crate) trait RowBlock: Copy {
    type Distances: Distances;
    /// The query must have the width that the type is for.
    unsafe fn new(query: &[u8]) -> Self;
    /// The distances of [`Distances::ROWS`] neighbouring rows.
    unsafe fn distances(&self, rows: *const u8) -> Self::Distances;
}

/// The distances of a few neighbouring rows, in a register.
pub(crate) trait Distances: Copy {
    /// Rows whose distances a register holds: at least 4, at most [`GROUP_ROWS`](super::hamming::GROUP_ROWS), and a
    /// divisor of it.
    const ROWS: usize;
    unsafe fn splat(limit: u32) -> Self;
    /// Writes [`Distances::ROWS`] numbers.
    unsafe fn store(self, out: *mut u32);
    /// A bit for each row of the blocks that is nearer than its limit. Nearly always there is none, and that should be
    /// found out first.
    unsafe fn below(blocks: &[Self], limits: Self) -> u64;
}

/// A kernel over rows that is generic over the [`RowBlock`].
pub(crate) trait RowKernel {
    type Output;
    unsafe fn run<R: RowBlock>(self) -> Self::Output;
    /// The scalar twin.
    fn plain(self) -> Self::Output;
}
