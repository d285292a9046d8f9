//! A uniform sample of the rows seen, for what needs points and not only a Gram matrix: the ITQ and refined
//! rotations, the factors of estimated distances, the energy captured. Not in the paper.
//!
//! Every row has a priority key, a hash of (seed, worker, row number); the sample is the rows with the
//! smallest keys. So it does not depend on batches, and the smallest keys of two samples together are
//! the sample of both streams: merging gives what one stream would have given.
//!
//! Rows are kept in half precision, relative to the first row of the stream (in single precision) and
//! scaled by their largest entry, so that a large offset or scale leaves them the 11 bits of a half. A merge moves rows to another origin, which rounds them once more.
//!
//! **Cost.** One hash per row; 2 d + 12 bytes for each sampled row, 32 MB at most. Of n rows about
//! k (1 + ln(n / k)) are ever copied.

use crate::pool::Pool;
use half::f16;
use half::slice::HalfFloatSliceExt;
use std::collections::BinaryHeap;

/// Sampled rows unless asked otherwise.
pub(crate) const DEFAULT_ROWS: usize = 4096;
/// Sampled rows that are read together.
const TOGETHER: usize = 128;
/// Most bytes that sampled rows may take.
pub(crate) const MAX_BYTES: usize = 32 << 20;

/// How many rows of `dim` values are kept when `asked` are wanted.
pub(crate) fn capped(asked: usize, dim: usize) -> usize {
    asked.min(MAX_BYTES / dim.saturating_mul(2).saturating_add(12))
}

/// The sample.
#[derive(Clone, Debug)]
pub(crate) struct Reservoir {
    dim: usize,
    capacity: usize,
    /// What rows are stored relative to: the first row of the stream.
    pub(crate) origin: Vec<f32>,
    /// (key, slot), the largest key on top.
    heap: BinaryHeap<(u64, u32)>,
    data: Vec<f16>,
    scales: Vec<f32>,
}

impl Reservoir {
    pub(crate) fn new(dim: usize, capacity: usize) -> Self {
        Self {
            dim,
            capacity,
            origin: vec![0.0; dim],
            heap: BinaryHeap::new(),
            data: Vec::new(),
            scales: Vec::new(),
        }
    }

    /// Most rows that are kept.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// How many rows are kept.
    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }

    /// Offers rows by their keys. Only rows that are still wanted after the last key are then read:
    /// `load` writes row `i` of the offer, relative to the origin.
    pub(crate) fn offer(
        &mut self,
        keys: impl Iterator<Item = u64>,
        mut load: impl FnMut(usize, &mut [f32]),
    ) {
        if self.capacity == 0 {
            return;
        }
        // Slots with the row of the offer that they want. A slot may change its mind: then the later entry counts.
        let mut wanted: Vec<(u32, usize)> = Vec::new();
        let mut top = self.heap.peek().map_or(0, |top| top.0);
        for (i, key) in keys.enumerate() {
            if self.len() < self.capacity {
                let slot = self.len() as u32;
                self.heap.push((key, slot));
                wanted.push((slot, i));
            } else if key < top {
                if let Some(mut largest) = self.heap.peek_mut() {
                    largest.0 = key;
                    wanted.push((largest.1, i));
                }
            } else {
                continue;
            }
            top = self.heap.peek().map_or(0, |top| top.0);
        }
        if wanted.is_empty() {
            return;
        }
        wanted.sort_by_key(|(slot, _)| *slot);
        let slots = self.len();
        self.data.reserve_exact(self.capacity * self.dim - self.data.len());
        self.data.resize(slots * self.dim, f16::ZERO);
        self.scales.resize(slots, 0.0);
        let mut row = vec![0f32; self.dim];
        for same in wanted.chunk_by(|a, b| a.0 == b.0) {
            if let Some((slot, i)) = same.last() {
                load(*i, &mut row);
                self.store(*slot as usize, &mut row);
            }
        }
    }

    /// Puts a row into a slot. `row` is used as work space.
    fn store(&mut self, slot: usize, row: &mut [f32]) {
        let scale = f32::from_bits(crate::arch::magnitude_bits(row));
        let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
        // A scale so small that its inverse overflows is as good as zero.
        let (scale, inverse) = if inverse.is_finite() { (scale, inverse) } else { (0.0, 0.0) };
        row.iter_mut().for_each(|x| *x *= inverse);
        self.scales[slot] = scale;
        self.data[slot * self.dim..][..self.dim].convert_from_f32_slice(row);
    }

    /// Keys and slots in the order of keys.
    fn sorted(&self) -> Vec<(u64, u32)> {
        let mut all = self.heap.clone().into_vec();
        all.sort_unstable();
        all
    }

    /// Writes the row of `slot`, relative to the origin and `shift`.
    fn read(&self, slot: u32, shift: &[f32], out: &mut [f32]) {
        let slot = slot as usize;
        self.data[slot * self.dim..][..self.dim].convert_to_f32_slice(out);
        let scale = self.scales[slot];
        out.iter_mut().zip(shift).for_each(|(x, s)| *x = *x * scale - s);
    }

    /// What `work` makes of the first `most` rows in the order of keys, relative to `centre`, [`TOGETHER`] at a time.
    pub(crate) fn map_parts<T: Send>(
        &self,
        pool: &Pool,
        centre: &[f64],
        most: usize,
        work: impl Fn(&[f32]) -> T + Sync,
    ) -> Vec<T> {
        let (shift, mut sorted) = (self.shift(centre), self.sorted());
        sorted.truncate(most);
        let mut out: Vec<Option<T>> = sorted.chunks(TOGETHER).map(|_| None).collect();
        // A few tasks, so that their buffers are made seldom.
        let share = out.len().div_ceil(4 * pool.threads()).max(1);
        let jobs = sorted.chunks(share * TOGETHER).zip(out.chunks_mut(share));
        pool.each(jobs.collect(), |(slots, out)| {
            let mut rows = vec![0f32; TOGETHER.min(slots.len()) * self.dim];
            for (slots, out) in slots.chunks(TOGETHER).zip(out) {
                *out = Some(work(self.read_all(slots, &shift, &mut rows)));
            }
        });
        out.into_iter().flatten().collect()
    }

    /// Shows parts of all rows one after the other, each with the number of its first row.
    pub(crate) fn each_part(&self, centre: &[f64], mut work: impl FnMut(usize, &[f32])) {
        let (shift, sorted) = (self.shift(centre), self.sorted());
        let mut rows = vec![0f32; TOGETHER.min(sorted.len()) * self.dim];
        for (part, slots) in sorted.chunks(TOGETHER).enumerate() {
            work(part * TOGETHER, self.read_all(slots, &shift, &mut rows));
        }
    }

    /// What is to be subtracted from rows relative to the origin.
    fn shift(&self, centre: &[f64]) -> Vec<f32> {
        centre.iter().zip(&self.origin).map(|(c, o)| (c - f64::from(*o)) as f32).collect()
    }

    fn read_all<'a>(&self, slots: &[(u64, u32)], shift: &[f32], rows: &'a mut [f32]) -> &'a [f32] {
        for ((_, slot), row) in slots.iter().zip(rows.chunks_exact_mut(self.dim)) {
            self.read(*slot, shift, row);
        }
        &rows[..slots.len() * self.dim]
    }

    /// Takes in the rows of another sample.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.capacity = self.capacity.min(other.capacity);
        while self.len() > self.capacity {
            self.heap.pop();
        }
        self.compact();
        if self.len() == 0 {
            self.origin.clone_from(&other.origin);
        }
        let shift: Vec<f32> = self.origin.iter().zip(&other.origin).map(|(a, b)| a - b).collect();
        let theirs = other.sorted();
        let keys = theirs.iter().map(|entry| entry.0);
        self.offer(keys, |i, row| other.read(theirs[i].1, &shift, row));
    }

    /// Closes the gaps that dropped rows left.
    fn compact(&mut self) {
        let (keys, data, scales) = self.parts();
        self.data = data;
        self.scales = scales;
        self.heap = keys.into_iter().zip(0..).collect();
    }

    /// Keys, rows and scales in the order of keys: what a file holds.
    pub(crate) fn parts(&self) -> (Vec<u64>, Vec<f16>, Vec<f32>) {
        let sorted = self.sorted();
        let mut data = Vec::with_capacity(sorted.len() * self.dim);
        for (_, slot) in &sorted {
            data.extend_from_slice(&self.data[*slot as usize * self.dim..][..self.dim]);
        }
        let scales = sorted.iter().map(|(_, slot)| self.scales[*slot as usize]).collect();
        (sorted.into_iter().map(|(key, _)| key).collect(), data, scales)
    }

    /// The sample of saved parts.
    pub(crate) fn from_parts(
        capacity: usize,
        origin: Vec<f32>,
        keys: Vec<u64>,
        data: Vec<f16>,
        scales: Vec<f32>,
    ) -> Self {
        let heap = keys.into_iter().zip(0..).collect();
        Self { dim: origin.len(), capacity, origin, heap, data, scales }
    }

    /// Heap bytes in use.
    pub(crate) fn bytes(&self) -> usize {
        self.data.capacity() * 2 + self.scales.capacity() * 4 + self.heap.capacity() * 16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(reservoir: &Reservoir, centre: &[f64]) -> Vec<f32> {
        reservoir.map_parts(&Pool::ONE, centre, usize::MAX, <[f32]>::to_vec).concat()
    }
    use crate::random::priority;

    fn sample(worker: u64, rows: std::ops::Range<u64>, k: usize) -> Reservoir {
        let mut r = Reservoir::new(2, k);
        r.origin = vec![1e6, -(worker as f32)];
        // In two offers of unequal size, as two batches would come.
        let (from, cut) = (rows.start, rows.start + (rows.end - rows.start) / 3);
        for part in [from..cut, cut..rows.end] {
            let first = part.start;
            r.offer(part.map(|i| priority(7, worker, i)), |i, row| {
                row.copy_from_slice(&[(first + i as u64) as f32 - 1e6, worker as f32 * 2.0]);
            });
        }
        r
    }

    /// Which rows are in the sample, read off their values: row number and worker.
    fn values(r: &Reservoir) -> Vec<(u64, u64)> {
        let rows = rows(r, &[1e6, 0.0]);
        // The first column is stored relative to 1e6 and so coarsely; the keys tell it exactly.
        let (keys, _, _) = r.parts();
        let mut all: Vec<_> = keys
            .iter()
            .zip(rows.chunks_exact(2))
            .map(|(key, x)| {
                let w = x[1].round() as u64;
                let i = (0..400).find(|i| priority(7, w, *i) == *key).unwrap();
                assert!((x[0] - (i as f32 - 1e6)).abs() < 1e6 / 1024.0);
                (i, w)
            })
            .collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn the_merged_sample_is_what_one_stream_would_have_given() {
        let k = 50;
        let mut all: Vec<(u64, (u64, u64))> =
            (0..3u64).flat_map(|w| (0..400).map(move |i| (priority(7, w, i), (i, w)))).collect();
        all.sort_unstable();
        let mut want: Vec<(u64, u64)> = all[..k].iter().map(|x| x.1).collect();
        want.sort_unstable();
        for order in [[0, 1, 2], [2, 0, 1], [1, 2, 0]] {
            let parts = order.map(|w| sample(w, 0..400, k));
            let mut merged = parts[0].clone();
            merged.merge(&parts[1]);
            merged.merge(&parts[2]);
            assert_eq!(values(&merged), want);
            assert_eq!(merged.len(), k);
        }
    }

    #[test]
    fn a_smaller_sample_wins_a_merge_and_zero_switches_off() {
        let mut a = sample(0, 0..100, 20);
        a.merge(&sample(1, 0..100, 7));
        assert_eq!((a.len(), a.capacity()), (7, 7));
        let mut none = Reservoir::new(2, 0);
        none.merge(&a);
        assert_eq!(none.len(), 0);
    }

    #[test]
    fn rows_keep_eleven_bits_at_any_scale() {
        for scale in [1e-30f32, 1.0, 1e14] {
            let mut r = Reservoir::new(3, 1);
            r.origin = vec![1e6; 3];
            r.offer([1].into_iter(), |_, row| {
                row.copy_from_slice(&[scale, -0.3 * scale, 0.0]);
            });
            let got = rows(&r, &[1e6, 1e6, 1e6]);
            for (g, w) in got.iter().zip([scale, -0.3 * scale, 0.0]) {
                assert!((g - w).abs() <= scale / 2048.0, "{g} {w}");
            }
        }
    }

    #[test]
    fn the_cap_is_in_bytes() {
        assert_eq!(capped(4096, 960), 4096);
        assert_eq!(capped(4096, 25_600), MAX_BYTES / 51_212);
        assert_eq!(capped(0, 10), 0);
    }
}
