//! One sub-block of the SRHT: `acc_k += ± (H_p D_b (F_b - 1 r'))_{a_k}` for all k, with the column
//! sums of `F_b - 1 r'` on the side.
//!
//! Strip by strip of [`STRIP`] columns, butterflies run over the rows in passes of radix 8 (three levels
//! per load and store, in registers), and the sampled rows are added to the accumulator. A strip of
//! `p` rows stays in the first-level cache. The first pass also finds bad values, and prefetches what
//! comes next ([`Prefetcher`]): strips do not follow the order of memory, so the hardware would not prefetch it.
//!
//! Cost: `log2(p) + 3` additions per element of the panel, and one per element of the accumulator.

use super::Panel;
use super::isa::{Isa, dispatch_f32};
use super::vector::F32Vector;

/// Rows of the first pass that go through three levels together.
const RADIX: usize = 8;
/// Columns that are transformed together.
pub(crate) const STRIP: usize = 64;

/// What to do with one sub-block.
#[derive(Clone, Copy)]
pub(crate) struct SubBlock<'a> {
    /// The p rows, a power of two, p >= 2.
    pub(crate) rows: Panel<'a>,
    /// Subtracted from every row.
    pub(crate) reference: &'a [f32],
    /// D_b: ±1 per row.
    pub(crate) signs: &'a [f32],
    /// For each accumulator row: which transformed row to add, and its sign.
    pub(crate) picks: &'a [(u32, f32)],
}

/// Runs one sub-block and returns the largest magnitude found in the rows, as bits. `scratch` holds
/// p * [`STRIP`] floats.
pub(crate) fn sub_block(
    isa: Isa,
    job: SubBlock<'_>,
    acc: &mut [&mut [f32]],
    sum: &mut [f64],
    scratch: &mut [f32],
) -> u32 {
    let p = job.rows.rows;
    let width = job.rows.width;
    assert!(p >= 2 && p.is_power_of_two() && job.signs.len() == p);
    assert!(job.reference.len() == width && sum.len() == width && scratch.len() >= p * STRIP);
    assert!(acc.len() == job.picks.len() && acc.iter().all(|row| row.len() == width));
    assert!(job.picks.iter().all(|pick| (pick.0 as usize) < p));
    assert!(job.rows.data.len() >= (p - 1) * job.rows.stride + width);
    dispatch_f32!(isa, run(
        job: SubBlock<'_>, acc: &mut [&mut [f32]], sum: &mut [f64], scratch: &mut [f32]
    ) -> u32)
}

#[inline(always)]
unsafe fn run<V: F32Vector>(
    job: SubBlock<'_>,
    acc: &mut [&mut [f32]],
    sum: &mut [f64],
    scratch: &mut [f32],
) -> u32 {
    // SAFETY: `sub_block` checked that p rows of `width` floats, `width` floats of reference and p
    // strips of scratch are there; strips cover columns below `width` only.
    unsafe {
        let mut largest = V::splat(0.0);
        let mut tail = 0f32;
        let mut ahead = Prefetcher::new(job.rows);
        let width = job.rows.width;
        let main = width / V::LANES * V::LANES;
        let mut from = 0;
        while from < main {
            let w = STRIP.min(main - from);
            let seen = strip::<V>(&job, from, w, acc, sum, scratch, &mut ahead);
            largest = largest.max_bits(seen);
            from += w;
        }
        if main < width {
            tail = strip::<f32>(&job, main, width - main, acc, sum, scratch, &mut ahead);
        }
        largest.largest().max(tail.largest())
    }
}

/// Prefetches the next sub-block while this one is worked on. Whole rows are prefetched in the order of memory. Of wide
/// rows, only some columns are needed; there, four streams are interleaved, since memory delivers distant rows faster
/// side by side than one after the other.
struct Prefetcher {
    /// The next line of each stream. It may be past the end of the data: nothing is read through these pointers.
    lines: [*const f32; 4],
    /// Floats from a line to the next of its stream.
    step: usize,
    column: usize,
    /// Columns of a row that are needed; no limit where whole rows are.
    needed: usize,
    stride: usize,
}

/// Floats of a cache line.
const LINE_FLOATS: usize = 16;

impl Prefetcher {
    fn new(panel: Panel<'_>) -> Self {
        let whole = panel.width == panel.stride;
        let (apart, step, needed) = if whole {
            (LINE_FLOATS, 4 * LINE_FLOATS, usize::MAX)
        } else {
            (panel.rows.div_ceil(4) * panel.stride, LINE_FLOATS, panel.width)
        };
        let next = panel.data.as_ptr().wrapping_add(panel.rows * panel.stride);
        let lines = std::array::from_fn(|stream| next.wrapping_add(stream * apart));
        Self { lines, step, column: 0, needed, stride: panel.stride }
    }

    /// Prefetches a line of each stream.
    #[inline(always)]
    unsafe fn next<V: F32Vector>(&mut self) {
        for line in self.lines {
            // SAFETY: the caller has the features.
            unsafe { V::prefetch(line.wrapping_add(self.column)) };
        }
        self.column += self.step;
        if self.column >= self.needed {
            self.column = 0;
            self.lines = self.lines.map(|line| line.wrapping_add(self.stride));
        }
    }
}

/// Columns `from..from + w`, w a multiple of the lanes and at most [`STRIP`]. Returns the largest magnitudes.
#[inline(always)]
unsafe fn strip<V: F32Vector>(
    job: &SubBlock<'_>,
    from: usize,
    w: usize,
    acc: &mut [&mut [f32]],
    sum: &mut [f64],
    scratch: &mut [f32],
    ahead: &mut Prefetcher,
) -> V {
    let p = job.rows.rows;
    let mut sums = [0f32; STRIP];
    let z = scratch.as_mut_ptr();
    // SAFETY: `run` passes strips inside the panel; scratch holds p strips.
    let largest = unsafe {
        let largest = match p {
            2 => first_pass::<V, 2>(job, from, w, z, &mut sums, ahead),
            4 => first_pass::<V, 4>(job, from, w, z, &mut sums, ahead),
            _ => first_pass::<V, RADIX>(job, from, w, z, &mut sums, ahead),
        };
        let mut stride = p.min(RADIX);
        while stride < p {
            // Four levels go as two passes of two: radix 16 does not fit sixteen registers.
            match (p / stride).trailing_zeros() {
                1 => stride = pass::<V, 2>(p, stride, w, z),
                2 | 4 => stride = pass::<V, 4>(p, stride, w, z),
                _ => stride = pass::<V, 8>(p, stride, w, z),
            }
        }
        for (row, &(a, sign)) in acc.iter_mut().zip(job.picks) {
            let (to, z, sign) =
                (row.as_mut_ptr().add(from), z.add(a as usize * STRIP), V::splat(sign));
            let mut c = 0;
            while c < w {
                sign.mul_add(V::load(z.add(c)), V::load(to.add(c))).store(to.add(c));
                c += V::LANES;
            }
        }
        largest
    };
    for (total, s) in sum[from..from + w].iter_mut().zip(&sums) {
        *total += f64::from(*s);
    }
    largest
}

/// Checks, subtracts the reference, sums, applies the signs, and does the first log2(R) levels. Returns
/// the largest magnitudes.
#[inline(always)]
unsafe fn first_pass<V: F32Vector, const R: usize>(
    job: &SubBlock<'_>,
    from: usize,
    w: usize,
    z: *mut f32,
    sums: &mut [f32; STRIP],
    ahead: &mut Prefetcher,
) -> V {
    // SAFETY: see `strip`.
    unsafe {
        let (stride, p) = (job.rows.stride, job.rows.rows);
        let source = job.rows.data.as_ptr().add(from);
        let reference = job.reference.as_ptr().add(from);
        let signs = job.signs.as_ptr();
        let mut largest = V::splat(0.0);
        for base in (0..p).step_by(R) {
            let from: [*const f32; R] = std::array::from_fn(|i| source.add((base + i) * stride));
            let to = z.add(base * STRIP);
            let mut c = 0;
            while c < w {
                let r = V::load(reference.add(c));
                let mut sum = V::load(sums.as_ptr().add(c));
                let mut v = [r; R];
                let mut i = 0;
                while i < R {
                    let (x0, x1) = (V::load(from[i].add(c)), V::load(from[i + 1].add(c)));
                    largest = largest.max_bits(x0).max_bits(x1);
                    let (y0, y1) = (x0.sub(r), x1.sub(r));
                    sum = sum.add(y0.add(y1));
                    // The signs ride on the first level: multiplying by ±1 is exact, so the fused
                    // operations round like plain sums.
                    let s0y0 = V::splat(*signs.add(base + i)).mul(y0);
                    let s1 = V::splat(*signs.add(base + i + 1));
                    v[i] = s1.mul_add(y1, s0y0);
                    v[i + 1] = s1.neg_mul_add(y1, s0y0);
                    i += 2;
                }
                for _ in (0..R * V::LANES).step_by(4 * LINE_FLOATS) {
                    ahead.next::<V>();
                }
                butterflies(&mut v, 2);
                sum.store(sums.as_mut_ptr().add(c));
                for (i, v) in v.iter().enumerate() {
                    v.store(to.add(i * STRIP + c));
                }
                c += V::LANES;
            }
        }
        largest
    }
}

/// log2(R) further levels over rows that lie `stride` apart; returns the next stride.
#[inline(always)]
unsafe fn pass<V: F32Vector, const R: usize>(
    p: usize,
    stride: usize,
    w: usize,
    z: *mut f32,
) -> usize {
    // SAFETY: row numbers stay below p, columns below w.
    unsafe {
        for outer in (0..p).step_by(stride * R) {
            for base in outer..outer + stride {
                let rows: [*mut f32; R] =
                    std::array::from_fn(|i| z.add((base + i * stride) * STRIP));
                let mut c = 0;
                while c < w {
                    let mut v = [V::splat(0.0); R];
                    for (v, row) in v.iter_mut().zip(&rows) {
                        *v = V::load(row.add(c));
                    }
                    butterflies(&mut v, 1);
                    for (v, row) in v.iter().zip(&rows) {
                        v.store(row.add(c));
                    }
                    c += V::LANES;
                }
            }
        }
    }
    stride * R
}

/// The levels of span `from` and up among R registers.
#[inline(always)]
unsafe fn butterflies<V: F32Vector, const R: usize>(v: &mut [V; R], from: usize) {
    let mut span = from;
    while span < R {
        for pair in (0..R).step_by(2 * span) {
            for j in pair..pair + span {
                let (a, b) = (v[j], v[j + span]);
                // SAFETY: the caller has the features.
                unsafe {
                    v[j] = a.add(b);
                    v[j + span] = a.sub(b);
                }
            }
        }
        span *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition: entry (a, i) of H_p is (-1)^popcount(a AND i).
    fn dense(rows: &[f32], d: usize, reference: &[f32], signs: &[f32], a: usize) -> Vec<f64> {
        (0..d)
            .map(|c| {
                (0..signs.len())
                    .map(|i| {
                        let h = if (a & i).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
                        h * f64::from(signs[i]) * f64::from(rows[i * d + c] - reference[c])
                    })
                    .sum()
            })
            .collect()
    }

    /// Small whole numbers: every sum is exact, so every set must agree to the bit.
    fn data(n: usize, salt: u32) -> Vec<f32> {
        (0..n as u32).map(|i| ((i * 2_654_435_761 + salt) >> 20) as f32 % 64.0 - 32.0).collect()
    }

    #[test]
    fn every_instruction_set_equals_the_dense_product() {
        // Miri is a thousand times slower.
        let sizes = if cfg!(miri) { 5 } else { 8 };
        for p in [2usize, 4, 8, 16, 32, 64, 128, 256].into_iter().take(sizes) {
            for (d, from, width) in [(1, 0, 1), (7, 2, 5), (70, 0, 70), (150, 13, 137)] {
                let rows = data(p * d, 1);
                let reference = data(d, 2);
                let signs: Vec<f32> =
                    data(p, 3).iter().map(|x| if *x < 0.0 { -1.0 } else { 1.0 }).collect();
                let picks: Vec<(u32, f32)> = (0..p as u32 + 3)
                    .map(|k| (k * 7 % p as u32, if k % 3 == 0 { -1.0 } else { 1.0 }))
                    .collect();
                for isa in Isa::every_and_scalar() {
                    let mut acc = vec![vec![1f32; width]; picks.len()];
                    let mut sum = vec![10f64; width];
                    let mut scratch = vec![f32::NAN; p * STRIP];
                    let job = SubBlock {
                        rows: Panel::new(&rows, d, from, width),
                        reference: &reference[from..from + width],
                        signs: &signs,
                        picks: &picks,
                    };
                    let mut views: Vec<&mut [f32]> = acc.iter_mut().map(|r| &mut r[..]).collect();
                    let largest = sub_block(isa, job, &mut views, &mut sum, &mut scratch);
                    for (k, &(a, sign)) in picks.iter().enumerate() {
                        let want = dense(&rows, d, &reference, &signs, a as usize);
                        for c in 0..width {
                            let w = 1.0 + f64::from(sign) * want[from + c];
                            assert_eq!(f64::from(acc[k][c]), w, "{isa:?} p={p} k={k} c={c}");
                        }
                    }
                    let mut most = 0f32;
                    for c in from..from + width {
                        let column = (0..p).map(|i| rows[i * d + c]);
                        most = column.clone().fold(most, |m, x| m.max(x.abs()));
                        let total: f32 = column.map(|x| x - reference[c]).sum();
                        assert_eq!(sum[c - from], 10.0 + f64::from(total));
                    }
                    assert_eq!(f32::from_bits(largest), most, "{isa:?}");
                }
            }
        }
    }

    #[test]
    fn a_bad_value_anywhere_shows_in_the_largest_magnitude() {
        let (p, d) = (4, 37);
        for isa in Isa::every_and_scalar() {
            for at in (0..p * d).step_by(if cfg!(miri) { 7 } else { 1 }) {
                for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                    let mut rows = vec![-0.0f32; p * d];
                    rows[at] = bad;
                    let job = SubBlock {
                        rows: Panel::new(&rows, d, 0, d),
                        reference: &[0.0; 37],
                        signs: &[1.0; 4],
                        picks: &[],
                    };
                    let largest =
                        sub_block(isa, job, &mut [], &mut [0.0; 37], &mut vec![0.0; p * STRIP]);
                    assert!(largest >= f32::INFINITY.to_bits(), "{isa:?} {at} {bad}");
                }
            }
        }
    }
}
