//! The nearest rows seen so far, for one query.
//!
//! A row is kept if it is nearer than the limit. Kept rows are counted by distance; as soon as k of them
//! are at most d away, d is the new limit. Rows come in the order of their ids, so one that is only as
//! near as the k-th comes after it and is rightly passed over. Within a block they may come in any order: there, rows
//! that are only as near as a k-th of the same block are kept too. Each row that is kept costs a constant
//! number of steps; those that are passed over cost nothing here.

/// A row and its Hamming distance, ordered by distance, then by row number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Neighbour {
    pub(crate) distance: u32,
    pub(crate) id: u64,
}

/// Keeps the `k` nearest rows, or all that are nearer than a limit.
pub(super) struct Best {
    k: usize,
    /// Only rows nearer than this are kept: the least d with at least k rows at most d away.
    limit: u32,
    /// Kept rows at most `limit` away.
    within: usize,
    /// Kept rows by distance.
    counts: Vec<u32>,
    kept: Vec<Neighbour>,
    /// Kept rows at which those beyond the limit are dropped.
    full: usize,
}

impl Best {
    /// The `k` nearest of codes of `bits` bits, among those nearer than `limit`.
    pub(super) fn new(k: usize, bits: usize, limit: u32) -> Self {
        let limit = if k == 0 { 0 } else { limit.min(bits as u32 + 1) };
        let counts = vec![0; limit as usize + 1];
        Self { k, limit, within: 0, counts, kept: Vec::new(), full: k.max(16).saturating_mul(4) }
    }

    pub(super) fn limit(&self) -> u32 {
        self.limit
    }

    /// Current k-th smallest distance, or `None` while fewer than k rows were seen.
    pub(super) fn reached(&self) -> Option<u32> {
        (self.within >= self.k).then_some(self.limit)
    }

    /// Lowers the limit: elsewhere there are k rows that are nearer.
    pub(super) fn lower(&mut self, limit: u32) {
        if limit < self.limit {
            self.limit = limit;
            self.within = self.counts[..=limit as usize].iter().map(|c| *c as usize).sum();
        }
    }

    /// The limit of a block whose rows come in any order, where `before` was the limit before it.
    pub(super) fn limit_within(&self, before: u32) -> u32 {
        before.min(self.limit + 1)
    }

    /// Takes a row at most as far as the limit.
    #[inline]
    pub(super) fn add(&mut self, distance: u32, id: u64) {
        debug_assert!(distance <= self.limit);
        self.kept.push(Neighbour { distance, id });
        self.counts[distance as usize] += 1;
        self.within += 1;
        if self.within >= self.k {
            while self.within - self.counts[self.limit as usize] as usize >= self.k {
                self.within -= self.counts[self.limit as usize] as usize;
                self.limit -= 1;
            }
            if self.kept.len() >= self.full {
                let limit = self.limit;
                self.kept.retain(|kept| kept.distance <= limit);
                // Not much room was made if many are as near as the k-th.
                self.full = self.full.max(2 * self.kept.len());
            }
        }
    }

    /// What was kept, in any order; the `k` nearest are among it.
    pub(super) fn into_kept(self) -> Vec<Neighbour> {
        self.kept
    }
}

/// The `k` nearest, in order.
pub(super) fn nearest(mut found: Vec<Neighbour>, k: usize) -> Vec<Neighbour> {
    if k < found.len() {
        if k > 0 {
            found.select_nth_unstable(k - 1);
        }
        found.truncate(k);
    }
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_k_nearest_are_kept(
            distances in prop::collection::vec(0u32..9, 0..300), k in 0usize..40, limit in 0u32..12,
        ) {
            let mut best = Best::new(k, 8, limit);
            let mut all = Vec::new();
            for (id, distance) in (0..).zip(distances) {
                if distance < best.limit() {
                    best.add(distance, id);
                }
                if distance < limit {
                    all.push(Neighbour { distance, id });
                }
                all.sort_unstable();
                if let Some(reached) = best.reached().filter(|_| k > 0) {
                    prop_assert_eq!(reached, all[k - 1].distance);
                }
                prop_assert!(best.kept.len() <= 4 * k.max(16) + 4);
            }
            all.truncate(k);
            prop_assert_eq!(nearest(best.into_kept(), k), all);
        }

        #[test]
        fn blocks_may_have_any_order(
            blocks in prop::collection::vec(prop::collection::vec(0u32..9, 0..150), 0..9),
            k in 1usize..40, limit in 0u32..12,
        ) {
            let mut best = Best::new(k, 8, limit);
            let (mut all, mut first) = (Vec::new(), 0);
            for block in &blocks {
                let before = best.limit();
                let rows: Vec<Neighbour> =
                    block.iter().zip(first..).map(|(d, id)| Neighbour { distance: *d, id }).collect();
                all.extend(rows.iter().filter(|row| row.distance < limit));
                for row in rows.iter().rev() {
                    if row.distance < best.limit_within(before) {
                        best.add(row.distance, row.id);
                    }
                }
                first += block.len() as u64;
                // Of a block, all rows may be as near as the k-th.
                prop_assert!(best.kept.len() <= 2 * (4 * k.max(16) + 150));
            }
            prop_assert_eq!(nearest(best.into_kept(), k), nearest(all, k));
        }
    }
}
