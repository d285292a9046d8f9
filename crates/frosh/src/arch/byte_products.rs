//! Scalar products of rows with many vectors, both rounded to whole numbers.
//!
//! Encoding compares a row with every word of a quantiser, and only needs to know which words are best. Bytes suffice
//! for that, and a CPU multiplies several times as many of them as floats. Each row and each vector has a scale of its
//! own. Sums are exact, so that every instruction set gives the same bytes.
//!
//! **Layout.** Sixteen vectors are a group, and four groups a column. Four neighbouring coordinates of a group are one
//! [`Line`]: one instruction of AVX-512 (VNNI) multiplies a line by four coordinates of a row and adds up the products of
//! each vector. Six rows run down a column with their sums in registers.
//!
//! **Range.** Coordinates are within ±63, those of rows are stored with 64 added. Four products then fit into 16 bits: AVX2
//! multiplies pairs of bytes, and adds up two pairs before it needs 32 bits.

use super::isa::{ByteSet, Isa};
use super::sixteen::{F32x16, Floats, Work16};
#[cfg(target_arch = "x86_64")]
use core::arch::x86_64::*;
use std::ops::Range;

/// Vectors of a group.
const GROUP: usize = 16;
/// Groups of a column.
const GROUPS: usize = 4;
/// Four coordinates of a row.
type Quad = [u8; 4];
/// Four coordinates of each vector of a group.
type Line = [i8; 4 * GROUP];

/// Largest magnitude.
const MAX: f32 = 63.0;
/// What is added to a coordinate of a row.
const OFFSET: i32 = 64;
/// Added to a float of magnitude below 2^22, this leaves the nearest whole number in the last bits; ties go to even.
const ROUNDING: f32 = 12_582_912.0;
/// Rows whose values are all below this are taken for zeros, so that nothing overflows.
const TINY: f32 = 1e-30;

/// Vectors as bytes.
#[derive(Debug)]
pub(crate) struct ByteVectors {
    dim: usize,
    count: usize,
    /// For each column, the lines of its groups for every four coordinates, filled up with zeros.
    lines: Vec<[Line; GROUPS]>,
    scales: Vec<[Floats; GROUPS]>,
    /// What a product starts with: it takes back what the offset of the rows adds.
    starts: Vec<[[i32; GROUP]; GROUPS]>,
}

impl ByteVectors {
    /// Rounds vectors of `dim` coordinates, which stand one after the other.
    pub(crate) fn new(vectors: &[f32], dim: usize) -> Self {
        let (count, quads) = (vectors.len() / dim, dim.div_ceil(4));
        assert_eq!(vectors.len(), count * dim);
        let columns = count.div_ceil(GROUP * GROUPS);
        let mut lines = vec![[[0i8; 4 * GROUP]; GROUPS]; columns * quads];
        let mut scales = vec![[[0f32; GROUP]; GROUPS]; columns];
        let mut starts = vec![[[0i32; GROUP]; GROUPS]; columns];
        for (i, vector) in vectors.chunks_exact(dim).enumerate() {
            let (column, group, lane) = (i / GROUP / GROUPS, i / GROUP % GROUPS, i % GROUP);
            let (factor, scale) = factor_and_scale(largest(vector));
            scales[column][group][lane] = scale;
            for (j, x) in vector.iter().enumerate() {
                let byte = &mut lines[column * quads + j / 4][group][4 * lane + j % 4];
                *byte = rounded(x * factor);
                starts[column][group][lane] -= OFFSET * i32::from(*byte);
            }
        }
        Self { dim, count, lines, scales, starts }
    }

    /// Number of vectors.
    pub(crate) fn count(&self) -> usize {
        self.count
    }
}

/// What values up to this magnitude are multiplied by to become bytes, and its inverse.
#[inline(always)]
fn factor_and_scale(largest: f32) -> (f32, f32) {
    if largest < TINY { (0.0, 0.0) } else { (MAX / largest, largest / MAX) }
}

/// The nearest whole number of magnitude at most 127.
#[inline(always)]
pub(crate) fn rounded(x: f32) -> i8 {
    (x + ROUNDING).to_bits() as u8 as i8
}

/// The largest magnitude. Bits of positive floats have their order, and the compiler vectorises whole numbers.
#[inline(always)]
pub(crate) fn largest(values: &[f32]) -> f32 {
    f32::from_bits(values.iter().fold(0, |most, x| most.max(x.abs().to_bits())))
}

/// Rows as bytes.
#[derive(Default)]
pub(crate) struct ByteRows {
    /// Coordinates that products are of: the first ones.
    dim: usize,
    /// Quads of a row.
    stride: usize,
    /// Coordinates. What fills up the last quad of a row is multiplied by zeros.
    quads: Vec<Quad>,
    scales: Vec<f32>,
}

impl ByteRows {
    /// Rounds these coordinates of rows that are `stride` floats apart.
    pub(crate) fn load(
        &mut self,
        isa: Isa,
        rows: &[f32],
        stride: usize,
        coordinates: Range<usize>,
    ) {
        let (n, quads) = (rows.len() / stride, coordinates.len().div_ceil(4));
        (self.dim, self.stride) = (coordinates.len(), quads);
        self.quads.resize(n * quads, [OFFSET as u8; 4]);
        self.scales.resize(n, 0.0);
        isa.sixteens(Load { rows, stride, coordinates, to: self });
    }

    /// Limits products to the first `dim` coordinates.
    pub(crate) fn limit(&mut self, dim: usize) {
        assert!(dim.div_ceil(4) <= self.stride);
        self.dim = dim;
    }

    /// Number of rows.
    fn len(&self) -> usize {
        self.scales.len()
    }
}

struct Load<'a> {
    rows: &'a [f32],
    stride: usize,
    coordinates: Range<usize>,
    to: &'a mut ByteRows,
}

impl Work16 for Load<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: F32x16>(self, _: S) {
        let Load { rows, stride, coordinates, to } = self;
        let per_row = coordinates.len().div_ceil(4);
        let each = to.quads.chunks_exact_mut(per_row).zip(&mut to.scales);
        for (row, (quads, scale)) in rows.chunks_exact(stride).zip(each) {
            let row = &row[coordinates.clone()];
            let (factor, inverse) = factor_and_scale(largest(row));
            *scale = inverse;
            for (to, x) in quads.as_flattened_mut().iter_mut().zip(row) {
                *to = (rounded(x * factor) as u8).wrapping_add(OFFSET as u8);
            }
        }
    }
}

/// Writes the products of row i with all vectors to the floats from i * `stride` on.
pub(crate) fn products(
    isa: Isa,
    vectors: &ByteVectors,
    rows: &ByteRows,
    out: &mut [f32],
    stride: usize,
) {
    assert!(rows.dim == vectors.dim && vectors.dim.div_ceil(4) <= rows.stride);
    assert!(vectors.count <= stride);
    assert!(rows.len() == 0 || out.len() >= (rows.len() - 1) * stride + vectors.count);
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni,avx2,popcnt")]
    fn avx512(
        s: super::isa::Avx512Popcnt,
        v: &ByteVectors,
        r: &ByteRows,
        out: &mut [f32],
        to: usize,
    ) {
        blocks::<_, 6, 4>(s, v, r, out, to);
    }
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,popcnt")]
    fn avx2(s: super::isa::Avx2Popcnt, v: &ByteVectors, r: &ByteRows, out: &mut [f32], to: usize) {
        blocks::<_, 4, 1>(s, v, r, out, to);
    }
    match isa.bytes() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the token proves the features.
        ByteSet::Avx512(token) => unsafe { avx512(token, vectors, rows, out, stride) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        ByteSet::Avx2(token) => unsafe { avx2(token, vectors, rows, out, stride) },
        _ => blocks::<_, 2, 1>(Arrays, vectors, rows, out, stride),
    }
}

/// Vectors of sixteen whole numbers. As in [`sixteen`](super::sixteen), to hold the token is the proof of the features.
trait Dots: Copy {
    /// A line.
    type L: Copy;
    /// A number for each vector of a group.
    type V: Copy;
    fn load(self, line: &Line) -> Self::L;
    fn numbers(self, x: &[i32; GROUP]) -> Self::V;
    /// Adds, for each vector of the group, the product of four coordinates with those of a row.
    fn add(self, to: Self::V, line: Self::L, quad: Quad) -> Self::V;
    /// The same for eight coordinates.
    #[inline(always)]
    fn add_two(self, to: Self::V, lines: [Self::L; 2], quads: [Quad; 2]) -> Self::V {
        self.add(self.add(to, lines[0], quads[0]), lines[1], quads[1])
    }
    /// The numbers times `scales` times `factor`.
    fn store(self, x: Self::V, scales: &Floats, factor: f32, to: &mut Floats);
}

/// All products, for `M` rows and `N` groups at a time. `N` divides the groups of a column.
#[inline(always)]
fn blocks<D: Dots, const M: usize, const N: usize>(
    d: D,
    vectors: &ByteVectors,
    rows: &ByteRows,
    out: &mut [f32],
    stride: usize,
) {
    let quads = vectors.dim.div_ceil(4);
    let columns = vectors.lines.chunks_exact(quads).zip(&vectors.scales).zip(&vectors.starts);
    // Rows are the inner loop: they and a column stay in the first cache.
    for (column, ((lines, scales), starts)) in columns.enumerate() {
        let first = column * GROUPS * GROUP;
        let count = (vectors.count - first).min(GROUPS * GROUP);
        for part in (0..count.div_ceil(GROUP)).step_by(N) {
            let (first, count) = (first + part * GROUP, vectors.count);
            let column = Column { lines, scales, starts, part, first, count };
            let mut i = 0;
            while i < rows.len() {
                if rows.len() - i >= M {
                    tile::<D, M, N>(d, &column, rows, i, out, stride);
                    i += M;
                } else {
                    tile::<D, 1, N>(d, &column, rows, i, out, stride);
                    i += 1;
                }
            }
        }
    }
}

/// Groups of a column.
struct Column<'a> {
    lines: &'a [[Line; GROUPS]],
    scales: &'a [Floats; GROUPS],
    starts: &'a [[i32; GROUP]; GROUPS],
    /// The first group, and the number of its first vector.
    part: usize,
    first: usize,
    /// The number of all vectors.
    count: usize,
}

/// The products of `M` rows from row `i` on with `N` groups. All loops over them have constant ends: so the sums are in
/// registers.
#[inline(always)]
#[expect(clippy::needless_range_loop, reason = "constant ends")]
fn tile<D: Dots, const M: usize, const N: usize>(
    d: D,
    column: &Column<'_>,
    rows: &ByteRows,
    i: usize,
    out: &mut [f32],
    stride: usize,
) {
    let Column { lines, scales, starts, part, first, count } = *column;
    let stride_x = rows.stride;
    let x = &rows.quads[i * stride_x..(i + M) * stride_x];
    let mut sums = [[d.numbers(&starts[part]); N]; M];
    for r in 0..M {
        for g in 1..N {
            sums[r][g] = d.numbers(&starts[part + g]);
        }
    }
    let (two, last) = lines.as_chunks::<2>();
    for (j, [one, other]) in two.iter().enumerate() {
        let mut loaded = [[d.load(&one[part]), d.load(&other[part])]; N];
        for g in 1..N {
            loaded[g] = [d.load(&one[part + g]), d.load(&other[part + g])];
        }
        for r in 0..M {
            let at = r * stride_x + 2 * j;
            // SAFETY: x has M times `stride_x` quads, and there are at most `stride_x` lines.
            let quads = unsafe { [*x.get_unchecked(at), *x.get_unchecked(at + 1)] };
            for g in 0..N {
                sums[r][g] = d.add_two(sums[r][g], loaded[g], quads);
            }
        }
    }
    if let [line] = last {
        for r in 0..M {
            for g in 0..N {
                let (line, quad) = (d.load(&line[part + g]), x[r * stride_x + lines.len() - 1]);
                sums[r][g] = d.add(sums[r][g], line, quad);
            }
        }
    }
    if first + N * GROUP <= count {
        let out = &mut out[i * stride + first..(i + M - 1) * stride + first + N * GROUP];
        for r in 0..M {
            for g in 0..N {
                // SAFETY: the last of these ends at (M - 1) stride + N GROUP, the length of `out`.
                let to = unsafe { &mut *out.as_mut_ptr().add(r * stride + g * GROUP).cast() };
                d.store(sums[r][g], &scales[part + g], rows.scales[i + r], to);
            }
        }
        return;
    }
    let mut last = [[[0f32; GROUP]; N]; M];
    for r in 0..M {
        for g in 0..N {
            d.store(sums[r][g], &scales[part + g], rows.scales[i + r], &mut last[r][g]);
        }
    }
    for (r, last) in last.iter().enumerate() {
        let to = &mut out[(i + r) * stride + first..(i + r) * stride + count];
        to.copy_from_slice(&last.as_flattened()[..to.len()]);
    }
}

/// Vectors as arrays. It is the scalar twin, too.
#[derive(Clone, Copy)]
struct Arrays;

impl Dots for Arrays {
    type L = Line;
    type V = [i32; GROUP];

    #[inline(always)]
    fn load(self, line: &Line) -> Line {
        *line
    }

    #[inline(always)]
    fn numbers(self, x: &[i32; GROUP]) -> Self::V {
        *x
    }

    #[inline(always)]
    fn add(self, mut to: Self::V, line: Line, quad: Quad) -> Self::V {
        for (sum, bytes) in to.iter_mut().zip(line.as_chunks::<4>().0) {
            for t in 0..4 {
                *sum += i32::from(bytes[t]) * i32::from(quad[t]);
            }
        }
        to
    }

    #[inline(always)]
    fn store(self, x: Self::V, scales: &Floats, factor: f32, to: &mut Floats) {
        for i in 0..GROUP {
            to[i] = x[i] as f32 * (scales[i] * factor);
        }
    }
}

/// A quad as one number, for the instructions that repeat it.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn number(quad: Quad) -> i32 {
    i32::from_ne_bytes(quad)
}

#[cfg(target_arch = "x86_64")]
impl Dots for super::isa::Avx512Popcnt {
    type L = __m512i;
    type V = __m512i;

    #[inline(always)]
    fn load(self, line: &Line) -> __m512i {
        // SAFETY: the token exists only where the CPU has the features; so below. A line has 64 bytes.
        unsafe { _mm512_loadu_si512(line.as_ptr().cast()) }
    }

    #[inline(always)]
    fn numbers(self, x: &[i32; GROUP]) -> __m512i {
        // SAFETY: see above.
        unsafe { _mm512_loadu_si512(x.as_ptr().cast()) }
    }

    #[inline(always)]
    fn add(self, to: __m512i, line: __m512i, quad: Quad) -> __m512i {
        // SAFETY: see above.
        unsafe { _mm512_dpbusd_epi32(to, _mm512_set1_epi32(number(quad)), line) }
    }

    #[inline(always)]
    fn store(self, x: __m512i, scales: &Floats, factor: f32, to: &mut Floats) {
        // SAFETY: sixteen floats are read and written.
        unsafe {
            let scales = _mm512_mul_ps(_mm512_loadu_ps(scales.as_ptr()), _mm512_set1_ps(factor));
            _mm512_storeu_ps(to.as_mut_ptr(), _mm512_mul_ps(_mm512_cvtepi32_ps(x), scales));
        }
    }
}

#[cfg(target_arch = "x86_64")]
impl Dots for super::isa::Avx2Popcnt {
    type L = [__m256i; 2];
    type V = [__m256i; 2];

    #[inline(always)]
    fn load(self, line: &Line) -> Self::L {
        // SAFETY: the token exists only where the CPU has the features; so below. A line has two times 32 bytes.
        unsafe {
            let half = line[32..].as_ptr();
            [_mm256_loadu_si256(line.as_ptr().cast()), _mm256_loadu_si256(half.cast())]
        }
    }

    #[inline(always)]
    fn numbers(self, x: &[i32; GROUP]) -> Self::V {
        // SAFETY: see above.
        unsafe {
            let half = x[8..].as_ptr();
            [_mm256_loadu_si256(x.as_ptr().cast()), _mm256_loadu_si256(half.cast())]
        }
    }

    #[inline(always)]
    fn add(self, mut to: Self::V, line: Self::L, quad: Quad) -> Self::V {
        // SAFETY: see above. Pairs of products do not saturate: 2 * 127 * 63 < 2^15.
        unsafe {
            let (quad, ones) = (_mm256_set1_epi32(number(quad)), _mm256_set1_epi16(1));
            for i in 0..2 {
                let pairs = _mm256_maddubs_epi16(quad, line[i]);
                to[i] = _mm256_add_epi32(to[i], _mm256_madd_epi16(pairs, ones));
            }
        }
        to
    }

    #[inline(always)]
    fn add_two(self, mut to: Self::V, lines: [Self::L; 2], quads: [Quad; 2]) -> Self::V {
        // SAFETY: see above. Four products fit into 16 bits: 4 * 127 * 63 < 2^15.
        unsafe {
            let (first, second) =
                (_mm256_set1_epi32(number(quads[0])), _mm256_set1_epi32(number(quads[1])));
            let ones = _mm256_set1_epi16(1);
            for i in 0..2 {
                let pairs = _mm256_add_epi16(
                    _mm256_maddubs_epi16(first, lines[0][i]),
                    _mm256_maddubs_epi16(second, lines[1][i]),
                );
                to[i] = _mm256_add_epi32(to[i], _mm256_madd_epi16(pairs, ones));
            }
        }
        to
    }

    #[inline(always)]
    fn store(self, x: Self::V, scales: &Floats, factor: f32, to: &mut Floats) {
        // SAFETY: two times eight floats are read and written.
        unsafe {
            for i in 0..2 {
                let scales = _mm256_loadu_ps(scales[8 * i..].as_ptr());
                let scales = _mm256_mul_ps(scales, _mm256_set1_ps(factor));
                let to = to[8 * i..].as_mut_ptr();
                _mm256_storeu_ps(to, _mm256_mul_ps(_mm256_cvtepi32_ps(x[i]), scales));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Purpose, Stream};

    /// Whole numbers of at most 63 are not rounded, and sums of them are exact.
    #[test]
    fn every_instruction_set_equals_the_definition() {
        let mut stream = Stream::new(2, Purpose::Sample, 0, 0);
        for (n, dim, count) in [(1, 1, 1), (7, 5, 16), (13, 33, 65), (6, 64, 64), (20, 18, 300)] {
            let mut whole = |most: i64, length: usize| -> Vec<f32> {
                let number = |_| stream.below(2 * most as u64 + 1) as f32 - most as f32;
                (0..length).map(number).collect()
            };
            let (mut rows, mut vectors) = (whole(63, n * (dim + 3)), whole(63, count * dim));
            // The largest number of each is the largest byte, so that the scales are 1.
            rows.chunks_exact_mut(dim + 3).for_each(|row| row[2] = -63.0);
            vectors.chunks_exact_mut(dim).for_each(|vector| vector[dim / 2] = 63.0);
            let packed = ByteVectors::new(&vectors, dim);
            assert_eq!(packed.count(), count);
            for isa in Isa::every() {
                let mut bytes = ByteRows::default();
                bytes.load(isa, &rows, dim + 3, 2..dim + 2);
                let stride = count + 5;
                let mut out = vec![f32::NAN; n * stride];
                products(isa, &packed, &bytes, &mut out, stride);
                for (row, out) in rows.chunks_exact(dim + 3).zip(out.chunks_exact(stride)) {
                    for (vector, got) in vectors.chunks_exact(dim).zip(out) {
                        let product: f32 = vector.iter().zip(&row[2..]).map(|(x, y)| x * y).sum();
                        assert_eq!(*got, product, "{isa:?} {n} {dim} {count}");
                    }
                    assert!(out[count..].iter().all(|x| x.is_nan()), "{isa:?}");
                }
            }
        }
    }

    /// The error of a product of normal numbers has the deviation that follows from rounding both factors.
    #[test]
    fn products_of_floats_are_as_near_as_rounding_allows() {
        let (n, dim, count) = (50, 128, 256);
        let mut stream = Stream::new(3, Purpose::Sample, 0, 0);
        let mut normal =
            |count: usize| -> Vec<f32> { (0..count).map(|_| stream.normal() as f32).collect() };
        let (rows, vectors) = (normal(n * dim), normal(count * dim));
        let mut bytes = ByteRows::default();
        bytes.load(Isa::detect(), &rows, dim, 0..dim);
        let mut out = vec![0f32; n * count];
        products(Isa::detect(), &ByteVectors::new(&vectors, dim), &bytes, &mut out, count);
        let (mut error, mut expected) = (0f64, 0f64);
        for (row, out) in rows.chunks_exact(dim).zip(out.chunks_exact(count)) {
            for (vector, got) in vectors.chunks_exact(dim).zip(out) {
                let exact: f64 =
                    vector.iter().zip(row).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum();
                error += (f64::from(*got) - exact).powi(2);
                // A step of rounding has the variance 1/12.
                let step = |x: &[f32]| f64::from(largest(x) / MAX).powi(2) / 12.0;
                let square = |x: &[f32]| x.iter().map(|x| f64::from(x * x)).sum::<f64>();
                expected += step(row) * square(vector) + step(vector) * square(row);
            }
        }
        // The errors of a row and of a vector are shared by their products, so that there are 306 independent ones or more.
        assert!((error / expected - 1.0).abs() < 0.25, "{error} {expected}");
    }

    #[test]
    fn zeros_and_tiny_rows_have_products_of_zero() {
        let packed = ByteVectors::new(&[1.0, -2.0, 0.0, 0.0], 2);
        for isa in Isa::every() {
            let mut bytes = ByteRows::default();
            bytes.load(isa, &[0.0, -0.0, 1e-40, 1e-38, 3.0, 0.0], 2, 0..2);
            let mut out = [f32::NAN; 6];
            products(isa, &packed, &bytes, &mut out, 2);
            assert_eq!(out[..4], [0.0; 4]);
            assert!((out[4] - 3.0).abs() < 0.05 && out[5] == 0.0, "{out:?}");
        }
    }
}
