//! A uniform sample of the rows of the stream. Not in the paper. It serves everything that needs rows and not only a
//! Gram matrix: the ITQ and refined rotations, the distance estimator, the captured energy.
//!
//! Every row has a key, a hash of (seed, worker, row number). The sample is the rows with the smallest keys; of equal
//! keys, the one of the earlier row is smaller. So it depends neither on batches nor on the order of offers, and the
//! rows with the smallest keys of two samples are a uniform sample of both streams together.
//!
//! Rows are stored in half precision or as bytes, relative to the first row of the stream (`rounding.rs`). A merge
//! moves rows to another origin, which rounds them a second time.
//!
//! **Cost.** One hash a row; 2 d + 28 or about d + 28 bytes for each sampled row, at most 32 MB. Of n rows, about
//! k (1 + ln(n / k)) are copied, for a sample of k rows.

use super::rounding::{Precision, Rounding};
use crate::pool::Pool;
use std::collections::BinaryHeap;
use std::ops::Range;

/// Default number of sampled rows.
pub(crate) const DEFAULT_ROWS: usize = 16_384;
/// Sampled rows that are read at a time.
pub(crate) const PART_ROWS: usize = 128;
/// Offers that enter the sample with fewer values are converted on one thread.
const MIN_PARALLEL_VALUES: usize = 1 << 16;
/// Limit on the bytes of a sample.
pub(crate) const MAX_BYTES: usize = 32 << 20;

/// The sample.
#[derive(Clone, Debug)]
pub(crate) struct Reservoir {
    rounding: Rounding,
    capacity: usize,
    /// The vector that is subtracted from stored rows: the first row of the stream.
    pub(crate) origin: Vec<f32>,
    /// With the largest key on top.
    heap: BinaryHeap<Entry>,
    data: Vec<u16>,
    scales: Vec<f32>,
}

/// Key, row number and slot of a sampled row. Row numbers order equal keys. They are those of the stream, but for rows
/// from a file or a merge: these are numbered in their order.
type Entry = (u64, u64, u32);

impl Reservoir {
    /// An empty sample of `requested` rows, or as many as memory allows.
    pub(crate) fn new(dim: usize, requested: usize) -> Self {
        let rounding = Rounding::for_sample(requested, dim);
        Self::empty(rounding, rounding.capacity(requested))
    }

    fn empty(rounding: Rounding, capacity: usize) -> Self {
        Self {
            rounding,
            capacity,
            origin: vec![0.0; rounding.dim],
            heap: BinaryHeap::new(),
            data: Vec::new(),
            scales: Vec::new(),
        }
    }

    /// Largest number of sampled rows.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// How rows are stored.
    pub(crate) fn rounding(&self) -> Rounding {
        self.rounding
    }

    /// Number of sampled rows.
    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }

    /// Offers rows by their keys. `first` is the number of the first row. After all keys were compared, `load` is
    /// called only for the rows that enter the sample: it writes row `i` of the offer, relative to the origin.
    pub(crate) fn offer(
        &mut self,
        pool: &Pool,
        first: u64,
        keys: impl Iterator<Item = u64>,
        load: impl Fn(usize, &mut [f32]) + Sync,
    ) {
        if self.capacity == 0 {
            return;
        }
        // (slot, row of the offer). If a slot occurs several times, the last entry counts.
        let mut accepted: Vec<(u32, usize)> = Vec::new();
        let mut top = self.heap.peek().map_or(0, |top| top.0);
        for (i, key) in keys.enumerate() {
            // Later rows have larger numbers: an equal key does not enter.
            if self.len() >= self.capacity && key >= top {
                continue;
            }
            if let Some(slot) = self.admit(key, first + i as u64) {
                accepted.push((slot, i));
            }
            top = self.heap.peek().map_or(0, |top| top.0);
        }
        if accepted.is_empty() {
            return;
        }
        accepted.sort_by_key(|(slot, _)| *slot);
        let last = accepted.chunk_by(|a, b| a.0 == b.0).filter_map(|same| same.last().copied());
        let last: Vec<(u32, usize)> = last.collect();
        // Rows are converted in parallel: slot after slot, each slot once.
        let (rounding, words) = (self.rounding, self.rounding.words());
        let mut rest = (&mut self.data[..], &mut self.scales[..]);
        let mut next = 0;
        let mut jobs = Vec::with_capacity(last.len());
        for (slot, i) in last {
            let skip = slot as usize - next;
            let (_, data) = rest.0.split_at_mut(skip * words);
            let (_, scales) = rest.1.split_at_mut(skip);
            let (row, data) = data.split_at_mut(words);
            let (scale, scales) = scales.split_at_mut(1);
            jobs.push((i, row, scale));
            (rest, next) = ((data, scales), slot as usize + 1);
        }
        let pool = if jobs.len() * words < MIN_PARALLEL_VALUES { &Pool::ONE } else { pool };
        let share = jobs.len().div_ceil(4 * pool.threads()).max(1);
        pool.each(jobs.chunks_mut(share).collect(), |jobs| {
            let mut row = vec![0f32; rounding.dim];
            for (i, to, scale) in jobs {
                load(*i, &mut row);
                scale[0] = rounding.store(&mut row, to);
            }
        });
    }

    /// Offers one row as [`Rounding::store`] writes it. Returns the key that the next row must be below, if the sample
    /// is full.
    pub(crate) fn offer_one(
        &mut self,
        key: u64,
        number: u64,
        row: &[u16],
        scale: f32,
    ) -> Option<u64> {
        if let Some(slot) = self.admit(key, number) {
            let slot = slot as usize;
            let words = self.rounding.words();
            self.data[slot * words..][..words].copy_from_slice(row);
            self.scales[slot] = scale;
        }
        self.limit()
    }

    /// The largest key, if the sample is full.
    pub(crate) fn limit(&self) -> Option<u64> {
        self.heap.peek().filter(|_| self.len() >= self.capacity).map(|top| top.0)
    }

    /// The slot for a row with this key, if it enters the sample.
    fn admit(&mut self, key: u64, number: u64) -> Option<u32> {
        if self.len() < self.capacity {
            let slot = self.len() as u32;
            self.heap.push((key, number, slot));
            let (slots, words) = (self.len(), self.rounding.words());
            self.data.reserve_exact(self.capacity * words - self.data.len());
            self.data.resize(slots * words, 0);
            self.scales.resize(slots, 0.0);
            return Some(slot);
        }
        let mut largest = self.heap.peek_mut()?;
        if (key, number) >= (largest.0, largest.1) {
            return None;
        }
        (largest.0, largest.1) = (key, number);
        Some(largest.2)
    }

    /// The sampled rows among those before row `number`: the smallest keys of them, but perhaps fewer than the sample
    /// holds.
    pub(crate) fn before(&self, number: u64) -> Self {
        let mut entries = self.sorted();
        entries.retain(|entry| entry.1 < number);
        let mut part = Self::empty(self.rounding, self.capacity);
        part.origin.clone_from(&self.origin);
        for (key, number, slot) in entries {
            part.offer_one(key, number, self.row(slot), self.scales[slot as usize]);
        }
        part
    }

    /// Puts the entries into descending order, which is a valid order of the heap: then sorting takes one pass. To be
    /// called when the last row was offered, since a fit sorts them many times.
    pub(crate) fn put_in_order(&mut self) {
        let mut all = std::mem::take(&mut self.heap).into_vec();
        all.sort_unstable_by(|a, b| b.cmp(a));
        self.heap = all.into();
    }

    /// The entries in ascending order of keys.
    fn sorted(&self) -> Vec<Entry> {
        let mut all = self.heap.clone().into_vec();
        all.sort_unstable();
        all
    }

    /// Writes the values of the row of `slot` from column `from` on, relative to the origin, minus `shift`.
    fn read(&self, slot: u32, from: usize, shift: &[f32], out: &mut [f32]) {
        self.rounding.load(self.row(slot), self.scales[slot as usize], from, shift, out);
    }

    /// The stored row of `slot`.
    fn row(&self, slot: u32) -> &[u16] {
        let words = self.rounding.words();
        &self.data[slot as usize * words..][..words]
    }

    /// Calls `work` on some of the rows in the order of keys, minus `centre`, [`PART_ROWS`] rows at a time. Returns the
    /// results in that order. The order of keys is random, so any range of it is a uniform sample.
    pub(crate) fn map_parts<T: Send>(
        &self,
        pool: &Pool,
        centre: &[f64],
        range: Range<usize>,
        work: impl Fn(&[f32]) -> T + Sync,
    ) -> Vec<T> {
        let (shift, sorted) = (self.shift(centre), self.sorted());
        let sorted = &sorted[range.start.min(sorted.len())..range.end.min(sorted.len())];
        let mut out: Vec<Option<T>> = sorted.chunks(PART_ROWS).map(|_| None).collect();
        // A few tasks for each thread, so that few buffers are allocated.
        let share = out.len().div_ceil(4 * pool.threads()).max(1);
        let jobs = sorted.chunks(share * PART_ROWS).zip(out.chunks_mut(share));
        pool.each(jobs.collect(), |(slots, out)| {
            let mut rows = vec![0f32; PART_ROWS.min(slots.len()) * self.rounding.dim];
            for (slots, out) in slots.chunks(PART_ROWS).zip(out) {
                *out = Some(work(self.read_all(slots, &shift, &mut rows)));
            }
        });
        out.into_iter().flatten().collect()
    }

    /// Some of the rows in the order of keys, minus `centre`.
    pub(crate) fn part(&self, centre: &[f64], range: Range<usize>) -> Part<'_> {
        let mut entries = self.sorted();
        entries.truncate(range.end);
        entries.drain(..range.start.min(entries.len()));
        Part { reservoir: self, shift: self.shift(centre), entries }
    }

    /// The centre relative to the origin.
    fn shift(&self, centre: &[f64]) -> Vec<f32> {
        centre.iter().zip(&self.origin).map(|(c, o)| (c - f64::from(*o)) as f32).collect()
    }

    fn read_all<'a>(&self, slots: &[Entry], shift: &[f32], rows: &'a mut [f32]) -> &'a [f32] {
        for ((.., slot), row) in slots.iter().zip(rows.chunks_exact_mut(self.rounding.dim)) {
            self.read(*slot, 0, shift, row);
        }
        &rows[..slots.len() * self.rounding.dim]
    }

    /// Merges another sample into this one. The smaller of the two capacities applies, and bytes if one of them has bytes.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.capacity = self.capacity.min(other.capacity);
        while self.len() > self.capacity {
            self.heap.pop();
        }
        if other.rounding.precision == Precision::Byte && self.rounding != other.rounding {
            self.round_to(other.rounding);
        }
        self.compact();
        if self.len() == 0 {
            self.origin.clone_from(&other.origin);
        }
        let shift: Vec<f32> = self.origin.iter().zip(&other.origin).map(|(a, b)| a - b).collect();
        let theirs = other.sorted();
        let keys = theirs.iter().map(|entry| entry.0);
        let next = self.len() as u64;
        self.offer(&Pool::ONE, next, keys, |i, row| other.read(theirs[i].2, 0, &shift, row));
    }

    /// Stores all rows in another precision.
    fn round_to(&mut self, rounding: Rounding) {
        let mut data = vec![0u16; self.scales.len() * rounding.words()];
        let (mut row, zeros) = (vec![0f32; rounding.dim], vec![0f32; rounding.dim]);
        for (slot, to) in (0u32..).zip(data.chunks_exact_mut(rounding.words())) {
            self.read(slot, 0, &zeros, &mut row);
            self.scales[slot as usize] = rounding.store(&mut row, to);
        }
        (self.data, self.rounding) = (data, rounding);
    }

    /// Moves rows to consecutive slots after rows were removed.
    fn compact(&mut self) {
        let (keys, data, scales) = self.parts();
        self.data = data;
        self.scales = scales;
        self.heap = entries(keys);
    }

    /// Keys, stored rows and scales in the order of keys.
    pub(crate) fn parts(&self) -> (Vec<u64>, Vec<u16>, Vec<f32>) {
        let sorted = self.sorted();
        let mut data = Vec::with_capacity(sorted.len() * self.rounding.words());
        for (.., slot) in &sorted {
            data.extend_from_slice(self.row(*slot));
        }
        let scales = sorted.iter().map(|(.., slot)| self.scales[*slot as usize]).collect();
        (sorted.into_iter().map(|(key, ..)| key).collect(), data, scales)
    }

    /// A sample from the parts of a file.
    pub(crate) fn from_parts(
        rounding: Rounding,
        capacity: usize,
        origin: Vec<f32>,
        keys: Vec<u64>,
        data: Vec<u16>,
        scales: Vec<f32>,
    ) -> Self {
        let heap = entries(keys);
        Self { rounding, capacity, origin, heap, data, scales }
    }

    /// Heap bytes in use.
    pub(crate) fn bytes(&self) -> usize {
        self.data.capacity() * 2
            + self.scales.capacity() * 4
            + self.heap.capacity() * size_of::<Entry>()
    }
}

/// Some of the sampled rows. Tasks read their rows or columns of it.
pub(crate) struct Part<'a> {
    reservoir: &'a Reservoir,
    shift: Vec<f32>,
    entries: Vec<Entry>,
}

impl Part<'_> {
    /// Number of rows.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Writes these columns of these rows, row after row, to the beginning of `out`, and returns that part of it.
    pub(crate) fn read<'o>(
        &self,
        rows: Range<usize>,
        columns: Range<usize>,
        out: &'o mut [f32],
    ) -> &'o [f32] {
        let (width, count) = (columns.len(), rows.len());
        let shift = &self.shift[columns.clone()];
        for ((.., slot), out) in self.entries[rows].iter().zip(out.chunks_exact_mut(width)) {
            self.reservoir.read(*slot, columns.start, shift, out);
        }
        &out[..count * width]
    }
}

/// The entries of rows with these keys, which are in ascending order and in consecutive slots.
fn entries(keys: Vec<u64>) -> BinaryHeap<Entry> {
    let all = keys.into_iter().zip(0u64..).zip(0u32..);
    let mut all: Vec<Entry> = all.map(|((key, number), slot)| (key, number, slot)).collect();
    // See `put_in_order`.
    all.reverse();
    all.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(reservoir: &Reservoir, centre: &[f64]) -> Vec<f32> {
        reservoir.map_parts(&Pool::ONE, centre, 0..usize::MAX, <[f32]>::to_vec).concat()
    }
    use crate::random::priority;

    fn sample(worker: u64, rows: std::ops::Range<u64>, k: usize) -> Reservoir {
        let mut r = Reservoir::new(2, k);
        r.origin = vec![1e6, -(worker as f32)];
        // In two offers of unequal size, like two batches.
        let (from, cut) = (rows.start, rows.start + (rows.end - rows.start) / 3);
        for part in [from..cut, cut..rows.end] {
            let first = part.start;
            r.offer(&Pool::ONE, first, part.map(|i| priority(7, worker, i)), |i, row| {
                row.copy_from_slice(&[(first + i as u64) as f32 - 1e6, worker as f32 * 2.0]);
            });
        }
        r
    }

    /// Row number and worker of each sampled row, decoded from its values.
    fn values(r: &Reservoir) -> Vec<(u64, u64)> {
        let rows = rows(r, &[1e6, 0.0]);
        // Half precision is too coarse for the row number in the first column, so the key identifies the row.
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
    fn a_merged_sample_equals_the_sample_of_one_stream() {
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
    fn a_merge_takes_the_smaller_capacity_and_zero_disables_sampling() {
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
            r.offer(&Pool::ONE, 0, [1].into_iter(), |_, row| {
                row.copy_from_slice(&[scale, -0.3 * scale, 0.0]);
            });
            let got = rows(&r, &[1e6, 1e6, 1e6]);
            for (g, w) in got.iter().zip([scale, -0.3 * scale, 0.0]) {
                assert!((g - w).abs() <= scale / 2048.0, "{g} {w}");
            }
        }
    }

    #[test]
    fn a_merge_of_halves_and_bytes_has_bytes_and_the_same_rows() {
        let halves = |worker| sample(worker, 0..400, 50);
        let bytes = |worker| {
            let mut bytes = halves(worker);
            bytes.round_to(Rounding { dim: 2, precision: Precision::Byte });
            bytes
        };
        let merged = |a: &Reservoir, b: &Reservoir| {
            let mut merged = a.clone();
            merged.merge(b);
            merged
        };
        let want = values(&merged(&halves(0), &halves(1)));
        for (a, b) in [(halves(0), bytes(1)), (bytes(0), halves(1)), (bytes(0), bytes(1))] {
            let merged = merged(&a, &b);
            assert_eq!(merged.rounding().precision, Precision::Byte);
            let (keys, _, _) = merged.parts();
            let all: Vec<u64> = want.iter().map(|(i, w)| priority(7, *w, *i)).collect();
            assert!(keys.len() == 50 && keys.iter().all(|key| all.contains(key)));
            // The first column is the row number less the origin; both columns are one block, with steps of its largest
            // entry over 127 at most.
            for row in rows(&merged, &[1e6, 0.0]).chunks_exact(2) {
                assert!((-1e6 - 8e3..=-1e6 + 8e3).contains(&row[0]), "{row:?}");
            }
        }
    }
}
