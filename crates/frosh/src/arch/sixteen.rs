//! Sixteen floats at a time, for loops over tables of sixteen entries.
//!
//! A token implements [`F32x16`]: its methods are safe, since to hold the token is the proof that the CPU has the
//! features. [`Isa::sixteens`] runs a [`Work16`] with the token of the CPU, compiled for its features. Multiplications
//! and additions are not fused, so results do not depend on the instruction set.

#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "one comment covers all methods of an implementation"
)]

use super::isa::{F32Set, Isa};
#[cfg(target_arch = "x86_64")]
use core::arch::x86_64::*;

/// Sixteen neighbouring numbers in memory.
pub(crate) type Floats = [f32; 16];

/// Operations on vectors of sixteen floats. `min` and `max` take no NaN.
pub(crate) trait F32x16: Copy {
    type V: Copy;
    /// Sixteen whole numbers of 16 bits.
    type I: Copy;
    /// Whether there are registers for more than sixteen vectors.
    const MANY_REGISTERS: bool;
    fn splat(self, x: f32) -> Self::V;
    fn load(self, x: &Floats) -> Self::V;
    fn store(self, x: Self::V, to: &mut Floats);
    fn whole_zeros(self) -> Self::I;
    /// Adds bytes to whole numbers. Sums are within 16 bits.
    fn add_bytes(self, to: Self::I, x: &[i8; 16]) -> Self::I;
    /// Tells the CPU that the memory from `after` bytes behind the beginning of `x` on will be read soon. It may lie
    /// outside of `x`.
    fn prefetch(self, x: &[i8; 16], after: usize);
    /// Whole numbers as floats.
    fn floats(self, x: Self::I) -> Self::V;
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// A bit for each lane in which the numbers are equal, the first lane in the last bit.
    fn equal(self, a: Self::V, b: Self::V) -> u32;
    /// Replaces the last [`ITEM_BITS`] bits of each lane by those of `items`.
    fn number(self, x: Self::V, items: &[u32; 16]) -> Self::V;
    /// Lane j gets lane j ^ 8; so below.
    fn swap8(self, x: Self::V) -> Self::V;
    fn swap4(self, x: Self::V) -> Self::V;
    fn swap2(self, x: Self::V) -> Self::V;
    fn swap1(self, x: Self::V) -> Self::V;
}

/// Bits that [`F32x16::number`] replaces.
pub(crate) const ITEM_BITS: u32 = 13;
/// A mask of these bits.
pub(crate) const ITEM: u32 = (1 << ITEM_BITS) - 1;

/// Safe code that is generic over the vectors. `run` must be `inline(always)`, and so must all that it calls: what is not
/// inlined is compiled without the features. This happens to closures, so that no closure may use a vector.
pub(crate) trait Work16 {
    type Output;
    fn run<S: F32x16>(self, s: S) -> Self::Output;
}

impl Isa {
    /// Runs `work` with the widest vectors.
    #[inline]
    pub(crate) fn sixteens<W: Work16>(self, work: W) -> W::Output {
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma")]
        fn avx2<W: Work16>(token: super::isa::Avx2Fma, work: W) -> W::Output {
            work.run(token)
        }
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx512f,avx2,fma")]
        fn avx512<W: Work16>(token: super::isa::Avx512F, work: W) -> W::Output {
            work.run(token)
        }
        match self.f32s() {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the token proves the features.
            F32Set::Avx2(token) => unsafe { avx2(token, work) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            F32Set::Avx512(token) => unsafe { avx512(token, work) },
            _ => work.run(Arrays),
        }
    }
}

/// Vectors as arrays. It is the scalar twin, too.
#[derive(Clone, Copy)]
struct Arrays;

#[inline(always)]
fn each(f: impl Fn(usize) -> f32) -> Floats {
    std::array::from_fn(f)
}

#[rustfmt::skip]
impl F32x16 for Arrays {
    type V = Floats;
    type I = [i16; 16];
    const MANY_REGISTERS: bool = false;
    #[inline(always)] fn splat(self, x: f32) -> Floats { [x; 16] }
    #[inline(always)] fn load(self, x: &Floats) -> Floats { *x }
    #[inline(always)] fn store(self, x: Floats, to: &mut Floats) { *to = x }
    #[inline(always)] fn whole_zeros(self) -> [i16; 16] { [0; 16] }
    #[inline(always)] fn add_bytes(self, mut to: [i16; 16], x: &[i8; 16]) -> [i16; 16] {
        for i in 0..16 { to[i] += i16::from(x[i]) }
        to
    }
    #[inline(always)] fn prefetch(self, _: &[i8; 16], _: usize) {}
    #[inline(always)] fn floats(self, x: [i16; 16]) -> Floats { each(|i| f32::from(x[i])) }
    #[inline(always)] fn add(self, a: Floats, b: Floats) -> Floats { each(|i| a[i] + b[i]) }
    #[inline(always)] fn sub(self, a: Floats, b: Floats) -> Floats { each(|i| a[i] - b[i]) }
    #[inline(always)] fn mul(self, a: Floats, b: Floats) -> Floats { each(|i| a[i] * b[i]) }
    #[inline(always)] fn min(self, a: Floats, b: Floats) -> Floats { each(|i| if a[i] < b[i] { a[i] } else { b[i] }) }
    #[inline(always)] fn max(self, a: Floats, b: Floats) -> Floats { each(|i| if a[i] > b[i] { a[i] } else { b[i] }) }
    #[inline(always)] fn equal(self, a: Floats, b: Floats) -> u32 { (0..16).map(|i| u32::from(a[i] == b[i]) << i).sum() }
    #[inline(always)] fn number(self, x: Floats, items: &[u32; 16]) -> Floats {
        each(|i| f32::from_bits(x[i].to_bits() & !ITEM | items[i]))
    }
    #[inline(always)] fn swap8(self, x: Floats) -> Floats { each(|i| x[i ^ 8]) }
    #[inline(always)] fn swap4(self, x: Floats) -> Floats { each(|i| x[i ^ 4]) }
    #[inline(always)] fn swap2(self, x: Floats) -> Floats { each(|i| x[i ^ 2]) }
    #[inline(always)] fn swap1(self, x: Floats) -> Floats { each(|i| x[i ^ 1]) }
}

// SAFETY of every block below: the token exists only where the CPU has AVX-512F; loads and stores go through references to
// exactly as many bytes and need no alignment.
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
impl F32x16 for super::isa::Avx512F {
    type V = __m512;
    type I = __m256i;
    const MANY_REGISTERS: bool = true;
    #[inline(always)] fn splat(self, x: f32) -> __m512 { unsafe { _mm512_set1_ps(x) } }
    #[inline(always)] fn load(self, x: &Floats) -> __m512 { unsafe { _mm512_loadu_ps(x.as_ptr()) } }
    #[inline(always)] fn store(self, x: __m512, to: &mut Floats) { unsafe { _mm512_storeu_ps(to.as_mut_ptr(), x) } }
    #[inline(always)] fn whole_zeros(self) -> __m256i { unsafe { _mm256_setzero_si256() } }
    #[inline(always)] fn add_bytes(self, to: __m256i, x: &[i8; 16]) -> __m256i { unsafe { _mm256_add_epi16(to, _mm256_cvtepi8_epi16(_mm_loadu_si128(x.as_ptr().cast()))) } }
    #[inline(always)] fn prefetch(self, x: &[i8; 16], after: usize) { unsafe { _mm_prefetch::<_MM_HINT_T0>(x.as_ptr().wrapping_add(after)) } }
    #[inline(always)] fn floats(self, x: __m256i) -> __m512 { unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(x)) } }
    #[inline(always)] fn add(self, a: __m512, b: __m512) -> __m512 { unsafe { _mm512_add_ps(a, b) } }
    #[inline(always)] fn sub(self, a: __m512, b: __m512) -> __m512 { unsafe { _mm512_sub_ps(a, b) } }
    #[inline(always)] fn mul(self, a: __m512, b: __m512) -> __m512 { unsafe { _mm512_mul_ps(a, b) } }
    #[inline(always)] fn min(self, a: __m512, b: __m512) -> __m512 { unsafe { _mm512_min_ps(a, b) } }
    #[inline(always)] fn max(self, a: __m512, b: __m512) -> __m512 { unsafe { _mm512_max_ps(a, b) } }
    #[inline(always)] fn equal(self, a: __m512, b: __m512) -> u32 { unsafe { u32::from(_mm512_cmp_ps_mask::<_CMP_EQ_OQ>(a, b)) } }
    #[inline(always)] fn number(self, x: __m512, items: &[u32; 16]) -> __m512 {
        unsafe {
            let kept = _mm512_andnot_si512(_mm512_set1_epi32(ITEM as i32), _mm512_castps_si512(x));
            _mm512_castsi512_ps(_mm512_or_si512(kept, _mm512_loadu_si512(items.as_ptr().cast())))
        }
    }
    #[inline(always)] fn swap8(self, x: __m512) -> __m512 { unsafe { _mm512_shuffle_f32x4::<0x4e>(x, x) } }
    #[inline(always)] fn swap4(self, x: __m512) -> __m512 { unsafe { _mm512_shuffle_f32x4::<0xb1>(x, x) } }
    #[inline(always)] fn swap2(self, x: __m512) -> __m512 { unsafe { _mm512_permute_ps::<0x4e>(x) } }
    #[inline(always)] fn swap1(self, x: __m512) -> __m512 { unsafe { _mm512_permute_ps::<0xb1>(x) } }
}

/// Two registers of AVX2.
#[cfg(target_arch = "x86_64")]
type Pair = [__m256; 2];

// SAFETY of every block below: the token exists only where the CPU has AVX2; loads and stores go through references to
// exactly as many bytes and need no alignment.
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
impl F32x16 for super::isa::Avx2Fma {
    type V = Pair;
    type I = __m256i;
    const MANY_REGISTERS: bool = false;
    #[inline(always)] fn splat(self, x: f32) -> Pair { unsafe { [_mm256_set1_ps(x); 2] } }
    #[inline(always)] fn load(self, x: &Floats) -> Pair { unsafe { [_mm256_loadu_ps(x.as_ptr()), _mm256_loadu_ps(x[8..].as_ptr())] } }
    #[inline(always)] fn store(self, x: Pair, to: &mut Floats) {
        unsafe { _mm256_storeu_ps(to.as_mut_ptr(), x[0]); _mm256_storeu_ps(to[8..].as_mut_ptr(), x[1]) }
    }
    #[inline(always)] fn whole_zeros(self) -> __m256i { unsafe { _mm256_setzero_si256() } }
    #[inline(always)] fn add_bytes(self, to: __m256i, x: &[i8; 16]) -> __m256i { unsafe { _mm256_add_epi16(to, _mm256_cvtepi8_epi16(_mm_loadu_si128(x.as_ptr().cast()))) } }
    #[inline(always)] fn prefetch(self, x: &[i8; 16], after: usize) { unsafe { _mm_prefetch::<_MM_HINT_T0>(x.as_ptr().wrapping_add(after)) } }
    #[inline(always)] fn floats(self, x: __m256i) -> Pair {
        unsafe {
            let (low, high) = (_mm256_castsi256_si128(x), _mm256_extracti128_si256::<1>(x));
            [_mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(low)), _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(high))]
        }
    }
    #[inline(always)] fn add(self, a: Pair, b: Pair) -> Pair { unsafe { [_mm256_add_ps(a[0], b[0]), _mm256_add_ps(a[1], b[1])] } }
    #[inline(always)] fn sub(self, a: Pair, b: Pair) -> Pair { unsafe { [_mm256_sub_ps(a[0], b[0]), _mm256_sub_ps(a[1], b[1])] } }
    #[inline(always)] fn mul(self, a: Pair, b: Pair) -> Pair { unsafe { [_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1])] } }
    #[inline(always)] fn min(self, a: Pair, b: Pair) -> Pair { unsafe { [_mm256_min_ps(a[0], b[0]), _mm256_min_ps(a[1], b[1])] } }
    #[inline(always)] fn max(self, a: Pair, b: Pair) -> Pair { unsafe { [_mm256_max_ps(a[0], b[0]), _mm256_max_ps(a[1], b[1])] } }
    #[inline(always)] fn equal(self, a: Pair, b: Pair) -> u32 {
        unsafe {
            let low = _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_EQ_OQ>(a[0], b[0])) as u32;
            let high = _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_EQ_OQ>(a[1], b[1])) as u32;
            low | high << 8
        }
    }
    #[inline(always)] fn number(self, x: Pair, items: &[u32; 16]) -> Pair {
        unsafe {
            let mask = _mm256_castsi256_ps(_mm256_set1_epi32(ITEM as i32));
            let low = _mm256_loadu_ps(items.as_ptr().cast());
            let high = _mm256_loadu_ps(items[8..].as_ptr().cast());
            [_mm256_or_ps(_mm256_andnot_ps(mask, x[0]), low), _mm256_or_ps(_mm256_andnot_ps(mask, x[1]), high)]
        }
    }
    #[inline(always)] fn swap8(self, x: Pair) -> Pair { [x[1], x[0]] }
    #[inline(always)] fn swap4(self, x: Pair) -> Pair { unsafe { [_mm256_permute2f128_ps::<1>(x[0], x[0]), _mm256_permute2f128_ps::<1>(x[1], x[1])] } }
    #[inline(always)] fn swap2(self, x: Pair) -> Pair { unsafe { [_mm256_permute_ps::<0x4e>(x[0]), _mm256_permute_ps::<0x4e>(x[1])] } }
    #[inline(always)] fn swap1(self, x: Pair) -> Pair { unsafe { [_mm256_permute_ps::<0xb1>(x[0]), _mm256_permute_ps::<0xb1>(x[1])] } }
}

/// The sum of a_j b_j c_j.
#[inline(always)]
pub(crate) fn weighted_product<S: F32x16>(s: S, a: &[f32], b: &[f32], c: &[f32]) -> f32 {
    let (a, a_rest) = a.as_chunks::<16>();
    let ((b, b_rest), (c, c_rest)) = (b.as_chunks::<16>(), c.as_chunks::<16>());
    let mut sums = s.splat(0.0);
    for ((a, b), c) in a.iter().zip(b).zip(c) {
        sums = s.add(sums, s.mul(s.mul(s.load(a), s.load(b)), s.load(c)));
    }
    let mut total = sum(s, sums);
    for ((a, b), c) in a_rest.iter().zip(b_rest).zip(c_rest) {
        total += a * b * c;
    }
    total
}

/// The squared length of a row.
#[inline(always)]
pub(crate) fn square<S: F32x16>(s: S, row: &[f32]) -> f32 {
    let (chunks, rest) = row.as_chunks::<16>();
    let mut sums = s.splat(0.0);
    for chunk in chunks {
        let x = s.load(chunk);
        sums = s.add(sums, s.mul(x, x));
    }
    let mut total = sum(s, sums);
    for x in rest {
        total += x * x;
    }
    total
}

/// The squared distance between two rows.
#[inline(always)]
pub(crate) fn square_distance<S: F32x16>(s: S, a: &[f32], b: &[f32]) -> f32 {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<16>(), b.as_chunks::<16>());
    let mut sums = s.splat(0.0);
    for (a, b) in a.iter().zip(b) {
        let difference = s.sub(s.load(a), s.load(b));
        sums = s.add(sums, s.mul(difference, difference));
    }
    let mut total = sum(s, sums);
    for (a, b) in a_rest.iter().zip(b_rest) {
        total += (a - b) * (a - b);
    }
    total
}

/// The sum of all lanes, always in the same order.
#[inline(always)]
pub(crate) fn sum<S: F32x16>(s: S, x: S::V) -> f32 {
    let mut lanes = [0f32; 16];
    let x = s.add(x, s.swap8(x));
    let x = s.add(x, s.swap4(x));
    let x = s.add(x, s.swap2(x));
    let x = s.add(x, s.swap1(x));
    s.store(x, &mut lanes);
    lanes[0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{Purpose, Stream};

    /// Everything that the vectors do, in one list of floats.
    struct All<'a>(&'a Floats, &'a Floats, &'a [u32; 16]);

    impl Work16 for All<'_> {
        type Output = Vec<u32>;

        #[inline(always)]
        fn run<S: F32x16>(self, s: S) -> Vec<u32> {
            let (a, b) = (s.load(self.0), s.load(self.1));
            let mut whole = s.whole_zeros();
            for floats in [self.0, self.1, self.0] {
                whole = s.add_bytes(whole, &floats.map(|x| (100.0 * x) as i8));
            }
            let vectors = [
                s.splat(self.0[3]),
                s.add(a, b),
                s.sub(a, b),
                s.mul(a, b),
                s.min(a, b),
                s.max(a, b),
                s.number(a, self.2),
                s.swap8(a),
                s.swap4(a),
                s.swap2(a),
                s.swap1(a),
                s.floats(whole),
            ];
            let (first, second) = (&self.0[..], &self.1[..]);
            s.prefetch(&[0; 16], 0);
            let mut out = vec![
                sum(s, a).to_bits(),
                square_distance(s, first, second).to_bits(),
                weighted_product(s, &first[..15], &second[..15], &first[..15]).to_bits(),
            ];
            for x in vectors {
                let mut lanes = [0f32; 16];
                s.store(x, &mut lanes);
                out.extend(lanes.map(f32::to_bits));
            }
            out.push(s.equal(a, s.max(a, b)));
            out
        }
    }

    #[test]
    fn every_instruction_set_equals_the_definition() {
        let mut stream = Stream::new(9, Purpose::Sample, 0, 0);
        for _ in 0..50 {
            let mut floats = || std::array::from_fn(|_| stream.normal() as f32);
            let (a, b): (Floats, Floats) = (floats(), floats());
            let items: [u32; 16] = std::array::from_fn(|j| (j as u32 * 637) % 8192);
            let by = |f: &dyn Fn(usize) -> f32| -> Vec<u32> {
                (0..16).map(|j| f(j).to_bits()).collect()
            };
            let mut want = [
                by(&|_| a[3]),
                by(&|j| a[j] + b[j]),
                by(&|j| a[j] - b[j]),
                by(&|j| a[j] * b[j]),
                by(&|j| a[j].min(b[j])),
                by(&|j| a[j].max(b[j])),
                by(&|j| f32::from_bits(a[j].to_bits() / 8192 * 8192 + items[j])),
                by(&|j| a[(j + 8) % 16]),
                by(&|j| a[j ^ 4]),
                by(&|j| a[j ^ 2]),
                by(&|j| a[j ^ 1]),
                by(&|j| {
                    let [x, y] = [a[j], b[j]].map(|x| (100.0 * x).trunc().clamp(-128.0, 127.0));
                    2.0 * x + y + 0.0
                }),
            ]
            .concat();
            want.push((0..16).map(|j| u32::from(a[j] >= b[j]) << j).sum());
            let results: Vec<Vec<u32>> = Isa::every_and_scalar()
                .into_iter()
                .map(|isa| isa.sixteens(All(&a, &b, &items)))
                .collect();
            for got in &results {
                assert_eq!(got[3..], want);
                // Sums have the same order everywhere, and are right up to rounding.
                assert_eq!(got[..3], results[0][..3]);
            }
            let [a, b] = [a, b].map(|x| x.map(f64::from));
            let exact: [f64; 3] = [
                a.iter().sum(),
                a.iter().zip(&b).map(|(a, b)| (a - b) * (a - b)).sum(),
                a[..15].iter().zip(&b).map(|(a, b)| a * b * a).sum(),
            ];
            for (got, exact) in results[0].iter().zip(exact) {
                assert!((f64::from(f32::from_bits(*got)) - exact).abs() < 1e-4);
            }
        }
    }
}
