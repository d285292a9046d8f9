//! A uniform sample of the rows seen, for what needs points and not only a Gram matrix: the ITQ
//! rotation now, estimates of quality later. Not in the paper.
//!
//! Every row has a priority key, a hash of (seed, worker, row number); the sample is the rows with the
//! smallest keys. So it does not depend on batches, and the smallest keys of two samples together are
//! the sample of both streams: merging gives what one stream would have given.
//!
//! Rows are kept in half precision, relative to the first row of the stream and scaled by their largest
//! entry, so that neither a large offset nor a large or tiny scale costs more than the 11 bits that a
//! half holds. A merge moves rows to another origin, which rounds them once more.
//!
//! **Cost.** One hash per row; 2 d + 12 bytes for each sampled row, 32 MB at most. Of n rows about
//! k (1 + ln(n / k)) are ever copied.

use half::f16;
use half::slice::HalfFloatSliceExt;
use std::collections::BinaryHeap;

/// Sampled rows unless asked otherwise.
pub(crate) const DEFAULT_ROWS: usize = 4096;
/// Most bytes that sampled rows may take.
pub(crate) const MAX_BYTES: usize = 32 << 20;

/// How many rows of `dim` values are kept when `asked` are wanted.
pub(crate) fn capped(asked: usize, dim: usize) -> usize {
    asked.min(MAX_BYTES / (2 * dim + 12))
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

    /// Whether a row with this key would be kept.
    pub(crate) fn wants(&self, key: u64) -> bool {
        self.len() < self.capacity || self.heap.peek().is_some_and(|top| key < top.0)
    }

    /// Keeps a row (relative to the origin) that is wanted. `row` is used as work space.
    pub(crate) fn keep(&mut self, key: u64, row: &mut [f32]) {
        let slot = if self.len() < self.capacity {
            let slot = self.len();
            self.data.resize((slot + 1) * self.dim, f16::ZERO);
            self.scales.push(0.0);
            slot
        } else {
            match self.heap.pop() {
                Some((_, slot)) => slot as usize,
                None => return, // no room at all
            }
        };
        let scale = row.iter().fold(0f32, |m, x| m.max(x.abs()));
        let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
        // A scale so small that its inverse overflows is as good as zero.
        let (scale, inverse) = if inverse.is_finite() { (scale, inverse) } else { (0.0, 0.0) };
        row.iter_mut().for_each(|x| *x *= inverse);
        self.scales[slot] = scale;
        self.data[slot * self.dim..][..self.dim].convert_from_f32_slice(row);
        self.heap.push((key, slot as u32));
    }

    /// Keys and slots in the order of keys.
    fn sorted(&self) -> Vec<(u64, u32)> {
        let mut all = self.heap.clone().into_vec();
        all.sort_unstable();
        all
    }

    /// Writes the row of `slot`, relative to the origin.
    fn read(&self, slot: u32, out: &mut [f32]) {
        let slot = slot as usize;
        self.data[slot * self.dim..][..self.dim].convert_to_f32_slice(out);
        out.iter_mut().for_each(|x| *x *= self.scales[slot]);
    }

    /// All rows in the order of keys, relative to `centre`.
    pub(crate) fn rows(&self, centre: &[f64]) -> Vec<f32> {
        let shift: Vec<f32> =
            centre.iter().zip(&self.origin).map(|(c, o)| (c - f64::from(*o)) as f32).collect();
        let mut out = vec![0f32; self.len() * self.dim];
        for ((_, slot), row) in self.sorted().into_iter().zip(out.chunks_exact_mut(self.dim)) {
            self.read(slot, row);
            row.iter_mut().zip(&shift).for_each(|(x, s)| *x -= s);
        }
        out
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
        let shift: Vec<f32> = other.origin.iter().zip(&self.origin).map(|(a, b)| a - b).collect();
        let mut row = vec![0f32; self.dim];
        for (key, slot) in other.sorted() {
            if !self.wants(key) {
                break; // keys only grow from here
            }
            other.read(slot, &mut row);
            row.iter_mut().zip(&shift).for_each(|(x, s)| *x += s);
            self.keep(key, &mut row);
        }
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
    use crate::random::priority;

    fn sample(worker: u64, rows: std::ops::Range<u64>, k: usize) -> Reservoir {
        let mut r = Reservoir::new(2, k);
        r.origin = vec![1e6, -(worker as f32)];
        for i in rows {
            let key = priority(7, worker, i);
            if r.wants(key) {
                r.keep(key, &mut [i as f32 - 1e6, worker as f32 * 2.0]);
            }
        }
        r
    }

    fn values(r: &Reservoir) -> Vec<(u64, u64)> {
        let mut all: Vec<_> = r
            .rows(&[0.0, 0.0])
            .chunks_exact(2)
            .map(|x| (x[0].round() as u64, x[1].round() as u64))
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
            let got: Vec<u64> = values(&merged).iter().map(|v| v.1).collect();
            assert_eq!(got, want.iter().map(|v| v.1).collect::<Vec<_>>());
            assert_eq!(merged.len(), k);
        }
    }

    #[test]
    fn a_smaller_sample_wins_a_merge_and_zero_switches_off() {
        let mut a = sample(0, 0..100, 20);
        a.merge(&sample(1, 0..100, 7));
        assert_eq!((a.len(), a.capacity()), (7, 7));
        let mut none = Reservoir::new(2, 0);
        assert!(!none.wants(0));
        none.merge(&a);
        assert_eq!(none.len(), 0);
    }

    #[test]
    fn rows_keep_eleven_bits_at_any_scale() {
        for scale in [1e-30f32, 1.0, 1e14] {
            let mut r = Reservoir::new(3, 1);
            r.origin = vec![1e6; 3];
            r.keep(1, &mut [scale, -0.3 * scale, 0.0]);
            let got = r.rows(&[1e6, 1e6, 1e6]);
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
