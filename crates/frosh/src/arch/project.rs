//! Sign bits of a projection: for every row x, bit k = (x · w_k > t_k), packed least significant
//! bit first.
//!
//! A small matrix product with its own last step. The projection is packed once, in columns of two
//! registers; six rows at a time run down all dimensions with their sums in registers, are compared
//! with the thresholds, and leave as bits: no projected value is ever stored. Rows are read where
//! they lie. Every row's sum is formed in the same order whatever rows stand beside it, so codes do
//! not depend on how rows were batched.
//!
//! Cost: one fused multiply-add per row, dimension and bit; rows are read once per 16 bits, from
//! cache.

use super::isa::{Isa, dispatch_f32};
use super::vector::F32Vector;

/// Rows that are projected together.
const TILE_ROWS: usize = 6;
/// Directions in one packed column: two registers of the widest set.
const COLUMN: usize = 32;

/// A projection packed for the kernel.
#[derive(Clone, Debug)]
pub(crate) struct Packed {
    dim: usize,
    bits: usize,
    /// For each group of [`COLUMN`] directions: `dim` times [`COLUMN`] floats, zero-padded.
    columns: Vec<f32>,
    /// Thresholds, padded with infinity, so that bits past the end are 0.
    thresholds: Vec<f32>,
}

impl Packed {
    /// Packs `bits` directions of `dim` values each, one after the other in `directions`.
    pub(crate) fn new(directions: &[f32], dim: usize, thresholds: &[f32]) -> Self {
        let bits = thresholds.len();
        assert!(directions.len() == bits * dim);
        let groups = bits.div_ceil(COLUMN);
        let mut columns = vec![0f32; groups * dim * COLUMN];
        for (k, w) in directions.chunks_exact(dim).enumerate() {
            for (j, x) in w.iter().enumerate() {
                columns[(k / COLUMN * dim + j) * COLUMN + k % COLUMN] = *x;
            }
        }
        let mut padded = thresholds.to_vec();
        padded.resize(groups * COLUMN, f32::INFINITY);
        Self { dim, bits, columns, thresholds: padded }
    }
}

impl Packed {
    /// Number of directions.
    pub(crate) fn count(&self) -> usize {
        self.bits
    }

    /// Floats that [`projections`] writes for each row: the bits, rounded up.
    pub(crate) fn padded(&self) -> usize {
        self.thresholds.len()
    }
}

/// Writes the bits of each row of `rows` to ceil(bits / 8) bytes of `out`.
pub(crate) fn sign_bits(isa: Isa, packed: &Packed, rows: &[f32], out: &mut [u8]) {
    run_on(isa, packed, rows, out, &mut []);
}

/// The same, and the projections themselves, less the thresholds: [`Packed::padded`] floats for each
/// row, of which those past the bits have no meaning.
pub(crate) fn projections(
    isa: Isa,
    packed: &Packed,
    rows: &[f32],
    out: &mut [u8],
    values: &mut [f32],
) {
    assert!(values.len() == rows.len() / packed.dim * packed.padded());
    run_on(isa, packed, rows, out, values);
}

/// `values` is empty where they are not wanted.
fn run_on(isa: Isa, packed: &Packed, rows: &[f32], out: &mut [u8], values: &mut [f32]) {
    let (dim, bytes) = (packed.dim, packed.bits.div_ceil(8));
    assert!(rows.len().is_multiple_of(dim) && out.len() == rows.len() / dim * bytes);
    dispatch_f32!(isa, run(packed: &Packed, rows: &[f32], out: &mut [u8], values: &mut [f32]) -> ())
}

#[inline(always)]
unsafe fn run<V: F32Vector>(packed: &Packed, rows: &[f32], out: &mut [u8], values: &mut [f32]) {
    let (dim, bytes) = (packed.dim, packed.bits.div_ceil(8));
    let n = rows.len() / dim;
    let mut i = 0;
    while i < n {
        let x = &rows[i * dim..];
        let out = &mut out[i * bytes..];
        let from = (i * packed.padded()).min(values.len());
        let values = &mut values[from..];
        // SAFETY: at least as many rows as the tile's height start at `x`.
        unsafe {
            match n - i {
                1 => tile::<V, 1>(packed, x, out, values),
                2 => tile::<V, 2>(packed, x, out, values),
                3 => tile::<V, 3>(packed, x, out, values),
                4 => tile::<V, 4>(packed, x, out, values),
                5 => tile::<V, 5>(packed, x, out, values),
                _ => tile::<V, TILE_ROWS>(packed, x, out, values),
            }
        }
        i += TILE_ROWS;
    }
}

#[inline(always)]
unsafe fn tile<V: F32Vector, const M: usize>(
    packed: &Packed,
    x: &[f32],
    out: &mut [u8],
    values: &mut [f32],
) {
    let (dim, bytes) = (packed.dim, packed.bits.div_ceil(8));
    debug_assert!(x.len() >= M * dim && packed.columns.len() == packed.padded() * dim);
    for (g, column) in packed.columns.chunks_exact(dim * COLUMN).enumerate() {
        // One array for each dimension: no pointer is kept from one iteration to the next, which after the last one
        // would point past the end of the columns.
        let column = column.as_chunks::<COLUMN>().0;
        let mut words = [0u32; M];
        let mut part = 0;
        // Narrow registers take a group in several goes of two registers each.
        while part < COLUMN {
            // SAFETY: `column` holds dim arrays of COLUMN floats and x holds M rows; part + 2 registers <= COLUMN because
            // COLUMN is a multiple of every 2 * LANES.
            unsafe {
                let mut sums = [[V::splat(0.0); 2]; M];
                let x = x.as_ptr();
                for (j, w) in column.iter().enumerate() {
                    let w = w.as_ptr().add(part);
                    let (w0, w1) = (V::load(w), V::load(w.add(V::LANES)));
                    for (i, s) in sums.iter_mut().enumerate() {
                        let v = V::splat(*x.add(i * dim + j));
                        s[0] = v.mul_add(w0, s[0]);
                        s[1] = v.mul_add(w1, s[1]);
                    }
                }
                let t = packed.thresholds.as_ptr().add(g * COLUMN + part);
                let (t0, t1) = (V::load(t), V::load(t.add(V::LANES)));
                for (i, (word, s)) in words.iter_mut().zip(&sums).enumerate() {
                    let (low, high) = (s[0].sub(t0), s[1].sub(t1));
                    *word |= (low.positive() | high.positive() << V::LANES) << part;
                    if !values.is_empty() {
                        let at = i * packed.padded() + g * COLUMN + part;
                        let to = values[at..at + 2 * V::LANES].as_mut_ptr();
                        low.store(to);
                        high.store(to.add(V::LANES));
                    }
                }
            }
            part += 2 * V::LANES;
        }
        let first = g * COLUMN / 8;
        let used = (bytes - first).min(COLUMN / 8);
        for (i, word) in words.iter().enumerate() {
            out[i * bytes + first..][..used].copy_from_slice(&word.to_le_bytes()[..used]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_instruction_set_equals_the_definition() {
        for (n, dim, bits) in [(1, 1, 1), (7, 5, 8), (13, 33, 31), (6, 12, 64), (29, 17, 130)] {
            // Small whole numbers make every sum exact, ties with the threshold included.
            let rows: Vec<f32> = (0..n * dim).map(|i| (i * 31 % 7) as f32 - 3.0).collect();
            let w: Vec<f32> = (0..bits * dim).map(|i| (i * 17 % 5) as f32 - 2.0).collect();
            let t: Vec<f32> = (0..bits).map(|k| (k % 3) as f32 - 1.0).collect();
            let packed = Packed::new(&w, dim, &t);
            for isa in Isa::every_and_scalar() {
                let mut out = vec![0xff; n * bits.div_ceil(8)];
                sign_bits(isa, &packed, &rows, &mut out);
                let mut again = out.clone();
                let mut values = vec![0f32; n * packed.padded()];
                projections(isa, &packed, &rows, &mut again, &mut values);
                assert_eq!(again, out);
                for (i, k) in (0..n).flat_map(|i| (0..bits).map(move |k| (i, k))) {
                    let dot: f32 = (0..dim).map(|j| rows[i * dim + j] * w[k * dim + j]).sum();
                    assert_eq!(values[i * packed.padded() + k], dot - t[k], "{isa:?}");
                }
                for i in 0..n {
                    for k in 0..bits.div_ceil(8) * 8 {
                        let dot: f32 = (0..dim)
                            .map(|j| rows[i * dim + j] * w.get(k * dim + j).unwrap_or(&0.0))
                            .sum();
                        let want = k < bits && dot > t[k];
                        let got = out[i * bits.div_ceil(8) + k / 8] >> (k % 8) & 1 == 1;
                        assert_eq!(got, want, "{isa:?} n={n} dim={dim} bits={bits} i={i} k={k}");
                    }
                }
            }
        }
    }

    /// Every height of the last tile and every share of the last group, in blocks of memory that end where they do.
    #[test]
    fn the_last_rows_and_directions_are_read_to_their_end_and_no_further() {
        let directions = if cfg!(miri) { vec![1, 33] } else { vec![1, 15, 16, 31, 32, 33, 64, 65] };
        for (dim, bits) in
            [1, 2, 3].into_iter().flat_map(|d| directions.iter().map(move |b| (d, *b)))
        {
            let w: Box<[f32]> = (0..bits * dim).map(|i| (i * 13 % 7) as f32 - 3.0).collect();
            let packed = Packed::new(&w, dim, &vec![0.5; bits]);
            assert_eq!(packed.columns.len(), bits.div_ceil(COLUMN) * COLUMN * dim);
            for n in 0..=2 * TILE_ROWS {
                let rows: Box<[f32]> = (0..n * dim).map(|i| (i * 5 % 9) as f32 - 4.0).collect();
                for isa in Isa::every_and_scalar() {
                    let bytes = bits.div_ceil(8);
                    let mut out = vec![0xff; n * bytes].into_boxed_slice();
                    let mut values = vec![f32::NAN; n * packed.padded()].into_boxed_slice();
                    projections(isa, &packed, &rows, &mut out, &mut values);
                    for (i, k) in (0..n).flat_map(|i| (0..bits).map(move |k| (i, k))) {
                        let dot: f32 = (0..dim).map(|j| rows[i * dim + j] * w[k * dim + j]).sum();
                        assert_eq!(
                            values[i * packed.padded() + k],
                            dot - 0.5,
                            "{isa:?} {n} {bits}"
                        );
                        let bit = out[i * bytes + k / 8] >> (k % 8) & 1 == 1;
                        assert_eq!(bit, dot > 0.5, "{isa:?} {n} {bits}");
                    }
                }
            }
        }
    }

    #[test]
    fn both_zeros_give_bit_0() {
        let packed = Packed::new(&[1.0, -1.0], 1, &[0.0, 0.0]);
        for isa in Isa::every_and_scalar() {
            let mut out = [0xff; 2];
            sign_bits(isa, &packed, &[0.0, -0.0], &mut out);
            assert_eq!(out, [0, 0], "{isa:?}");
        }
    }
}
