//! One sub-block of the sparse embedding: `acc_{h(i)} += s(i) (f_i - r)` for every row i, with the
//! column sums of `f_i - r` on the side.
//!
//! Rows are read in order, once. Columns go in strips so narrow that the sums and the accumulator's
//! rows stay close. Cost: three additions per element.

use super::Panel;
use super::isa::{Isa, dispatch_f32};
use super::vector::F32Vector;

/// What to do with one sub-block.
#[derive(Clone, Copy)]
pub(crate) struct SubBlock<'a> {
    /// The rows.
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
    assert!(job.buckets.len() == job.rows.rows && acc.iter().all(|row| row.len() == width));
    dispatch_f32!(isa, run(job: SubBlock<'_>, acc: &mut [&mut [f32]], sum: &mut [f64]) -> u32)
}

/// Columns of a strip: their sums are kept on the stack.
const STRIP: usize = 1024;

#[inline(always)]
unsafe fn run<V: F32Vector>(job: SubBlock<'_>, acc: &mut [&mut [f32]], sum: &mut [f64]) -> u32 {
    let mut sums = [0f32; STRIP];
    // SAFETY: columns stay below the width that every row, the reference and the accumulator have;
    // `acc[h]` is checked by the slice.
    unsafe {
        let mut largest = V::splat(0.0);
        let mut tail = 0f32;
        let width = job.rows.width;
        let mut from = 0;
        while from < width {
            let w = STRIP.min(width - from);
            let main = w / V::LANES * V::LANES;
            let reference = job.reference.as_ptr().add(from);
            sums[..w].fill(0.0);
            for (i, &(h, sign)) in job.buckets.iter().enumerate() {
                let row = job.rows.row(i).as_ptr().add(from);
                let to = acc[h as usize].as_mut_ptr().add(from);
                let s = V::splat(sign);
                let mut c = 0;
                while c < main {
                    V::prefetch(row.wrapping_add(job.rows.stride + c));
                    let x = V::load(row.add(c));
                    largest = largest.max_bits(x);
                    let y = x.sub(V::load(reference.add(c)));
                    V::load(sums.as_ptr().add(c)).add(y).store(sums.as_mut_ptr().add(c));
                    s.mul_add(y, V::load(to.add(c))).store(to.add(c));
                    c += V::LANES;
                }
                for (c, sum) in sums[..w].iter_mut().enumerate().skip(main) {
                    let x = *row.add(c);
                    tail = tail.max_bits(x);
                    let y = x - *reference.add(c);
                    *sum += y;
                    *to.add(c) += sign * y;
                }
            }
            for (total, s) in sum[from..from + w].iter_mut().zip(&sums) {
                *total += f64::from(*s);
            }
            from += w;
        }
        tail.largest().max(largest.largest())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_instruction_set_equals_the_definition() {
        let (p, d, q) = (9usize, 1100usize, 4usize);
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
            for isa in Isa::every_and_scalar() {
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
