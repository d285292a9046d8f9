//! One sub-block of the sparse embedding: `acc_{h(i)} += s(i) (f_i - r)` for every row i, with the
//! column sums of `f_i - r` on the side.
//!
//! Rows are read in order, once. Columns go in strips so narrow that the sums and the accumulator's
//! rows stay close. Cost: three additions per element.

use super::{Isa, Panel, Vector, dispatch};

/// What to do with one sub-block.
#[derive(Clone, Copy)]
pub(crate) struct SubBlock<'a> {
    /// The rows, an even number.
    pub(crate) rows: Panel<'a>,
    /// Subtracted from every row.
    pub(crate) reference: &'a [f32],
    /// For each row: the accumulator row it is added to, and its sign.
    pub(crate) buckets: &'a [(u32, f32)],
}

/// Runs one sub-block and returns the largest magnitude found in the rows, as bits.
pub(crate) fn sub_block(
    isa: Isa,
    job: SubBlock<'_>,
    acc: &mut [&mut [f32]],
    sum: &mut [f64],
) -> u32 {
    let width = job.rows.width;
    assert!(job.reference.len() == width && sum.len() == width);
    assert!(job.buckets.len() == job.rows.rows && job.rows.rows.is_multiple_of(2));
    assert!(acc.iter().all(|row| row.len() == width));
    dispatch!(isa, run(job: SubBlock<'_>, acc: &mut [&mut [f32]], sum: &mut [f64]) -> u32)
}

/// Columns whose sums are kept on the stack.
const WIDE: usize = 1024;

#[inline(always)]
unsafe fn run<V: Vector>(job: SubBlock<'_>, acc: &mut [&mut [f32]], sum: &mut [f64]) -> u32 {
    let mut sums = [0f32; WIDE];
    // SAFETY: columns stay below the width that every row, the reference and the accumulator have;
    // `acc[h]` is checked by the slice.
    unsafe {
        let mut largest = [V::splat(0.0); 2];
        let mut tail = 0f32;
        let width = job.rows.width;
        let mut from = 0;
        while from < width {
            let w = WIDE.min(width - from);
            let main = w / V::LANES * V::LANES;
            let reference = job.reference.as_ptr().add(from);
            sums[..w].fill(0.0);
            // Rows go in pairs, which halves the traffic of reference and sums.
            for (i, pair) in job.buckets.chunks_exact(2).enumerate() {
                let x = [0, 1].map(|r| job.rows.row(2 * i + r).as_ptr().add(from));
                // One bucket may take both rows: each is stored before the next is loaded.
                let to = [0, 1].map(|r| acc[pair[r].0 as usize].as_mut_ptr().add(from));
                let s = [0, 1].map(|r| V::splat(pair[r].1));
                let mut c = 0;
                while c < main {
                    let (x0, x1) = (V::load(x[0].add(c)), V::load(x[1].add(c)));
                    largest = [largest[0].max_bits(x0), largest[1].max_bits(x1)];
                    let r = V::load(reference.add(c));
                    let (y0, y1) = (x0.sub(r), x1.sub(r));
                    let sum = V::load(sums.as_ptr().add(c)).add(y0.add(y1));
                    sum.store(sums.as_mut_ptr().add(c));
                    s[0].mul_add(y0, V::load(to[0].add(c))).store(to[0].add(c));
                    s[1].mul_add(y1, V::load(to[1].add(c))).store(to[1].add(c));
                    c += V::LANES;
                }
                for (c, sum) in sums[..w].iter_mut().enumerate().skip(main) {
                    let (x0, x1) = (*x[0].add(c), *x[1].add(c));
                    tail = tail.max_bits(x0).max_bits(x1);
                    let r = *reference.add(c);
                    let (y0, y1) = (x0 - r, x1 - r);
                    *sum += y0 + y1;
                    *to[0].add(c) += pair[0].1 * y0;
                    *to[1].add(c) += pair[1].1 * y1;
                }
            }
            for (total, s) in sum[from..from + w].iter_mut().zip(&sums) {
                *total += f64::from(*s);
            }
            from += w;
        }
        tail.largest().max(largest[0].largest()).max(largest[1].largest())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_instruction_set_equals_the_definition() {
        let (p, d, q) = (10usize, 1100usize, 4usize);
        let rows: Vec<f32> = (0..p * d).map(|i| (i * 7919 % 61) as f32 - 30.0).collect();
        let reference: Vec<f32> = (0..d).map(|i| (i % 5) as f32).collect();
        let buckets: Vec<(u32, f32)> = (0..p as u32)
            .map(|i| (i * i % q as u32, if i % 2 == 0 { 1.0 } else { -1.0 }))
            .collect();
        for (from, width) in [(0, d), (3, 1050), (5, 6)] {
            let mut want = vec![vec![0f32; width]; q];
            for (i, &(h, s)) in buckets.iter().enumerate() {
                for c in 0..width {
                    want[h as usize][c] += s * (rows[i * d + from + c] - reference[from + c]);
                }
            }
            for isa in Isa::every() {
                let mut acc = vec![vec![0f32; width]; q];
                let mut sum = vec![0f64; width];
                let mut views: Vec<&mut [f32]> = acc.iter_mut().map(|r| &mut r[..]).collect();
                let job = SubBlock {
                    rows: Panel::new(&rows, d, from, width),
                    reference: &reference[from..from + width],
                    buckets: &buckets,
                };
                let largest = sub_block(isa, job, &mut views, &mut sum);
                assert_eq!(acc, want, "{isa:?}");
                let columns = (0..p).flat_map(|i| &rows[i * d + from..i * d + from + width]);
                let most = columns.fold(0f32, |m, x| m.max(x.abs()));
                assert_eq!(f32::from_bits(largest), most);
                for c in 0..width {
                    let total: f32 =
                        (0..p).map(|i| rows[i * d + from + c] - reference[from + c]).sum();
                    assert_eq!(sum[c], f64::from(total));
                }
            }
        }
    }
}
