//! The positions of a few rows in the order of scores, without sorting all scores.
//!
//! The position of a row is the number of smaller scores. For few rows, each is counted. For more rows, scores are first
//! counted in buckets: equal parts of the range from the smallest to the largest score of these rows. A row's position is
//! then the number of scores in the buckets before its own, and of the smaller ones in its own bucket.
//!
//! **Cost.** 2 n comparisons for each of few rows. With buckets, three passes over n scores, if scores are spread over the
//! range.

use crate::arch;

/// Number of rows from which buckets are faster.
const MANY: usize = 40;
/// Buckets within the range. One more is below the range and one above it.
const BUCKETS: usize = ALL - 2;
/// A power of two, so that a mask replaces the check of an index.
const ALL: usize = 512;
/// Marks that scores are compared with in one pass.
const MARKS: usize = 4;

/// Work space for positions.
pub(super) struct Positions {
    /// The bucket of each score.
    buckets: Vec<u16>,
    /// For each bucket, the number of scores in those before it.
    before: [u32; ALL + 1],
    /// For each bucket, where its next score goes in `inside`.
    next: [u32; ALL],
    /// The scores in buckets that have some of the rows, bucket after bucket, and then one that is not used.
    inside: Vec<f32>,
}

impl Default for Positions {
    fn default() -> Self {
        let (before, next) = ([0; ALL + 1], [0; ALL]);
        Self { buckets: Vec::new(), before, next, inside: Vec::new() }
    }
}

impl Positions {
    /// The positions of `rows`, from 0; the mean position for rows with equal scores.
    pub(super) fn of(&mut self, scores: &[f32], rows: &[u32]) -> Vec<f32> {
        let of = |row: &u32| scores[*row as usize];
        let low = rows.iter().map(of).fold(f32::INFINITY, f32::min);
        let high = rows.iter().map(of).fold(f32::NEG_INFINITY, f32::max);
        // The largest of these scores is then in the last bucket of the range, and larger ones are above it.
        let scale = (BUCKETS - 1) as f32 / (high - low);
        // The scale is infinite if all scores are equal, and zero or no number if they are too far apart.
        let usable = scale > 0.0 && scale.is_finite();
        if rows.len() < MANY || !usable {
            let mut found = Vec::with_capacity(rows.len());
            for rows in rows.chunks(MARKS) {
                let mut marks = [low; MARKS];
                marks.iter_mut().zip(rows).for_each(|(mark, row)| *mark = of(row));
                let counts = arch::below_and_equal(scores, marks);
                found.extend(counts.into_iter().take(rows.len()).map(place));
            }
            return found;
        }
        self.count(scores, low, scale);
        self.collect(scores, rows);
        let one = |row: &u32| {
            let bucket = usize::from(self.buckets[*row as usize]);
            let count = (self.before[bucket + 1] - self.before[bucket]) as usize;
            // Every score of the bucket was written, and `next` was moved to its end.
            let end = self.next[bucket] as usize;
            let score = of(row);
            let inside = &self.inside[end - count..end];
            let below = inside.iter().filter(|other| **other < score).count() as u32;
            let equal = inside.iter().filter(|other| **other == score).count() as u32;
            place((self.before[bucket] + below, equal))
        };
        rows.iter().map(one).collect()
    }

    /// Counts the scores in the buckets before each bucket.
    fn count(&mut self, scores: &[f32], low: f32, scale: f32) {
        self.buckets.resize(scores.len(), 0);
        arch::buckets(scores, low, scale, BUCKETS as f32, &mut self.buckets);
        // Four counts of each bucket: one that is increased twice in a row would wait for the store.
        let mut counts = [[0u32; 4]; ALL];
        let mut each = self.buckets.chunks_exact(4);
        for four in &mut each {
            for (i, bucket) in four.iter().enumerate() {
                counts[usize::from(*bucket) % ALL][i] += 1;
            }
        }
        for bucket in each.remainder() {
            counts[usize::from(*bucket) % ALL][0] += 1;
        }
        let mut sum = 0;
        for (before, counts) in self.before.iter_mut().zip(counts) {
            *before = sum;
            sum += counts.iter().sum::<u32>();
        }
        self.before[ALL] = sum;
    }

    /// Collects the scores in the buckets of these rows.
    fn collect(&mut self, scores: &[f32], rows: &[u32]) {
        let (mut steps, mut total) = ([0u32; ALL], 0);
        for row in rows {
            let bucket = usize::from(self.buckets[*row as usize]);
            if steps[bucket] == 0 {
                steps[bucket] = 1;
                self.next[bucket] = total;
                total += self.before[bucket + 1] - self.before[bucket];
            }
        }
        // Scores in other buckets are all written to the same place: cheaper than a branch that is hard to predict.
        for (next, step) in self.next.iter_mut().zip(&steps) {
            if *step == 0 {
                *next = total;
            }
        }
        self.inside.resize(total as usize + 1, 0.0);
        for (score, bucket) in scores.iter().zip(&self.buckets) {
            let bucket = usize::from(*bucket) % ALL;
            let next = self.next[bucket];
            self.inside[next as usize] = *score;
            self.next[bucket] = next + steps[bucket];
        }
    }
}

/// The position of a score, if so many scores are smaller, and so many equal, itself among them.
fn place((below, equal): (u32, u32)) -> f32 {
    below as f32 + equal.saturating_sub(1) as f32 / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By counting smaller and equal scores for each row.
    fn counted(scores: &[f32], rows: &[u32]) -> Vec<f32> {
        let count = |row: &u32| {
            let score = scores[*row as usize];
            let below = scores.iter().filter(|other| **other < score).count();
            let equal = scores.iter().filter(|other| **other == score).count();
            below as f32 + (equal - 1) as f32 / 2.0
        };
        rows.iter().map(count).collect()
    }

    #[test]
    fn positions_are_counts_of_smaller_scores() {
        let mut state = 1u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 8
        };
        let mut positions = Positions::default();
        for (n, distinct) in [(1, 1), (2, 1), (50, 3), (400, 1 << 20), (300, 40), (5000, 1 << 24)] {
            for (scale, offset) in [(1.0, -7.0), (1e-41, 0.0), (1e28, 3.0), (1e-3, 1e6)] {
                let scores: Vec<f32> =
                    (0..n).map(|_| (next() % distinct) as f32 * scale + offset).collect();
                for count in [n.min(5), n.min(MANY), n.min(100)] {
                    let rows: Vec<u32> = (0..count).map(|_| next() % n as u32).collect();
                    let want = counted(&scores, &rows);
                    assert_eq!(positions.of(&scores, &rows), want, "{n} {distinct} {scale}");
                }
                assert_eq!(positions.of(&scores, &[]), [0f32; 0]);
            }
        }
    }

    #[test]
    fn extreme_scores_have_positions_too() {
        let mut positions = Positions::default();
        // Zeros of both signs are equal.
        let scores = [0.0, -0.0, 1.0, f32::MAX, -1.0];
        assert_eq!(positions.of(&scores, &[0, 1, 3]), [1.5, 1.5, 4.0]);
        // Many rows: a range that overflows, rows far outside of it, and infinities.
        let mut scores: Vec<f32> = (0..100).map(|i| (i * 37 % 100) as f32).collect();
        let rows: Vec<u32> = (0..100).step_by(3).collect();
        for (i, extreme) in [(1, f32::MAX), (2, f32::MIN), (4, f32::INFINITY), (5, -f32::INFINITY)]
        {
            scores[i] = extreme;
            assert_eq!(positions.of(&scores, &rows), counted(&scores, &rows), "{extreme}");
        }
        let all: Vec<u32> = (0..100).collect();
        assert_eq!(positions.of(&scores, &all), counted(&scores, &all));
    }
}
