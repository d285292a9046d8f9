//! The nearest rows so far, for one query.
//!
//! A row is kept if its distance is below the limit. Kept rows are counted by distance. As soon as k rows have a distance
//! of at most d, the limit is d. Rows come in ascending order of ids. So a later row whose distance equals the k-th
//! smallest has a larger id than the k-th row and is rejected. Within a block, rows may come in any order; there, rows
//! whose distance equals the k-th smallest are kept too. A kept row costs a constant number of steps. A rejected row costs
//! nothing here.

/// A row and its Hamming distance, ordered by distance, then by row number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Neighbour {
    pub(crate) distance: u32,
    pub(crate) id: u64,
}

/// Collects the `k` nearest rows below a limit.
pub(super) struct Best {
    k: usize,
    /// Only rows below this distance are kept. Once k rows are kept, it is the k-th smallest distance.
    limit: u32,
    /// Number of kept rows with a distance of at most `limit`.
    within_limit: usize,
    /// Number of kept rows for each distance.
    counts: Vec<u32>,
    kept: Vec<Neighbour>,
    /// Length of `kept` at which rows above the limit are dropped.
    prune_at: usize,
}

impl Best {
    /// For the `k` nearest codes of `bits` bits with a distance below `limit`.
    pub(super) fn new(k: usize, bits: usize, limit: u32) -> Self {
        let limit = if k == 0 { 0 } else { limit.min(bits as u32 + 1) };
        let counts = vec![0; limit as usize + 1];
        Self {
            k,
            limit,
            within_limit: 0,
            counts,
            kept: Vec::new(),
            prune_at: k.max(16).saturating_mul(4),
        }
    }

    pub(super) fn limit(&self) -> u32 {
        self.limit
    }

    /// The k-th smallest distance, or `None` while fewer than k rows are kept.
    pub(super) fn kth_distance(&self) -> Option<u32> {
        (self.within_limit >= self.k).then_some(self.limit)
    }

    /// Lowers the limit, because another task has found k rows below it.
    pub(super) fn lower_limit(&mut self, limit: u32) {
        if limit < self.limit {
            self.limit = limit;
            self.within_limit = self.counts[..=limit as usize].iter().map(|c| *c as usize).sum();
        }
    }

    /// The limit for a row in a block whose rows come in any order. `before` is the limit at the start of the block.
    pub(super) fn block_limit(&self, before: u32) -> u32 {
        before.min(self.limit + 1)
    }

    /// Adds a row with a distance of at most the limit.
    #[inline]
    pub(super) fn add(&mut self, distance: u32, id: u64) {
        debug_assert!(distance <= self.limit);
        self.kept.push(Neighbour { distance, id });
        self.counts[distance as usize] += 1;
        self.within_limit += 1;
        if self.within_limit >= self.k {
            while self.within_limit - self.counts[self.limit as usize] as usize >= self.k {
                self.within_limit -= self.counts[self.limit as usize] as usize;
                self.limit -= 1;
            }
            if self.kept.len() >= self.prune_at {
                let limit = self.limit;
                self.kept.retain(|kept| kept.distance <= limit);
                // If many rows tie with the k-th, few were dropped. Then wait longer, so that the cost stays constant.
                self.prune_at = self.prune_at.max(2 * self.kept.len());
            }
        }
    }

    /// The kept rows in any order. They include the `k` nearest.
    pub(super) fn into_kept(self) -> Vec<Neighbour> {
        self.kept
    }
}

/// The `k` nearest rows, sorted.
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
                if let Some(kth) = best.kth_distance().filter(|_| k > 0) {
                    prop_assert_eq!(kth, all[k - 1].distance);
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
                    if row.distance < best.block_limit(before) {
                        best.add(row.distance, row.id);
                    }
                }
                first += block.len() as u64;
                // All rows of a block may tie with the k-th.
                prop_assert!(best.kept.len() <= 2 * (4 * k.max(16) + 150));
            }
            prop_assert_eq!(nearest(best.into_kept(), k), nearest(all, k));
        }
    }
}
