//! Ranking codes by more than the bits that differ: float queries against bits.
//!
//! | ranking | query | beside the bits | order by |
//! |---|---|---|---|
//! | Hamming | bits | nothing | bits that differ |
//! | asymmetric | floats v = W'(y - phi) | nothing | -S, with S = sum_k ±v_k, + where the bit is 1 |
//! | estimated | floats | two bytes (see `factors.rs`) | an estimate of \|x - y\|^2 |
//!
//! All three read the same codes. The asymmetric order costs no storage; the estimated one costs two bytes a
//! vector and is worth far more than sixteen further bits.
//!
//! **Where we differ from the paper**, which knows Hamming only: see [`Hasher::queries`] for what a query keeps.
//!
//! **Cost.** For each query a table of 256 sums for every byte of a code (1 kB each); then one look-up and
//! one addition a byte and code.
//!
//! ```
//! use frosh::{Config, Pool, Ranking, Rows, Sketcher};
//! let data: Vec<f32> = (0..6400).map(|i| ((i * 31) % 101) as f32).collect();
//! let rows = Rows::new(&data, 32)?;
//! let mut sketcher = Sketcher::new(Config::new(32))?;
//! sketcher.push(rows)?;
//! let hasher = sketcher.finish().hasher(16)?;
//! let codes = hasher.encode_with_factors(Pool::all(), rows)?;
//! let queries = hasher.queries(Pool::all(), rows.slice(0..3))?;
//! let hits = codes.ranked(Pool::all(), &queries, Ranking::Estimated, 5)?;
//! assert_eq!((hits.len(), hits[0].len()), (3, 5));
//! # Ok::<(), frosh::Error>(())
//! ```

use crate::codes::Codes;
use crate::error::Result;
use crate::factors;
use crate::hamming::IdSet;
use crate::hasher::Hasher;
use crate::names::names;
use crate::pool::Pool;
use crate::rows::{Element, Rows};
use std::cmp::Ordering;

/// How codes are put in order for a query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Ranking {
    /// By the bits that differ: both sides are bits.
    #[default]
    Hamming,
    /// By the signed sum of the query's projections: the query is floats, the codes are bits.
    Asymmetric,
    /// By an estimate of the true squared distance: the query is floats, the codes have factors.
    Estimated,
}

names!(
    Ranking,
    "ranking",
    Hamming => "hamming",
    Asymmetric => "asymmetric",
    Estimated => "estimated"
);

/// Queries made ready for any ranking: their bits, their projections, their lengths.
#[derive(Clone, Debug)]
pub struct Queries {
    codes: Codes,
    /// `bits` projections for each query.
    values: Vec<f32>,
    /// Squared lengths of the centred rows.
    square_norms: Vec<f32>,
    /// Values of the norm's and of the gain's codes; none if the model has no scales.
    tables: Option<Box<[[f32; 256]; 2]>>,
}

impl Queries {
    /// How many.
    pub fn len(&self) -> usize {
        self.square_norms.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.square_norms.is_empty()
    }

    /// Their codes, as [`Hasher::encode`] gives them.
    pub fn codes(&self) -> &Codes {
        &self.codes
    }
}

/// A row that a ranking found; smaller scores come first, equal ones by id.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scored {
    /// Bits that differ, or -S, or the estimated squared distance (which may fall below zero).
    pub score: f32,
    /// Row number among the codes.
    pub id: u64,
}

impl Scored {
    pub(crate) fn order(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then(self.id.cmp(&other.id))
    }
}

impl Hasher {
    /// Makes queries ready for any ranking.
    pub fn queries<T: Element>(&self, pool: &Pool, rows: Rows<'_, T>) -> Result<Queries> {
        let projected = self.project(pool, rows)?;
        let tables = self.scales().map(|s| Box::new([s.norm.table(), s.gain.table()]));
        let square_norms = projected.square_norms.iter().map(|n| *n as f32).collect();
        Ok(Queries { codes: projected.codes, values: projected.values, square_norms, tables })
    }
}

impl Codes {
    /// The `k` best rows here for each query, best first, equal ones by id.
    pub fn ranked(
        &self,
        pool: &Pool,
        queries: &Queries,
        ranking: Ranking,
        k: usize,
    ) -> Result<Vec<Vec<Scored>>> {
        self.ranked_among(pool, queries, ranking, k, None)
    }

    /// [`Codes::ranked`] of the rows whose numbers are in `allowed`, where it is given.
    pub fn ranked_among(
        &self,
        pool: &Pool,
        queries: &Queries,
        ranking: Ranking,
        k: usize,
        allowed: Option<&IdSet>,
    ) -> Result<Vec<Vec<Scored>>> {
        if ranking == Ranking::Hamming {
            let found = self.search(pool, &queries.codes, k, u32::MAX, allowed)?;
            let scored = |n: crate::codes::Neighbour| Scored { score: n.distance as f32, id: n.id };
            return Ok(found.into_iter().map(|f| f.into_iter().map(scored).collect()).collect());
        }
        self.check_ranking(queries, ranking)?;
        // Few queries are cut by rows as well, so that every thread has work.
        let n = self.len();
        let parts =
            (2 * pool.threads()).div_ceil(queries.len().max(1)).min(n.div_ceil(4096)).max(1);
        let mut found: Vec<Vec<Scored>> = vec![Vec::new(); queries.len() * parts];
        let jobs = found.iter_mut().enumerate().collect();
        pool.each(jobs, |(job, found)| {
            let (query, part) = (job / parts, job % parts);
            let mut best = Best::new(k.min(n), allowed);
            let from = n * part / parts;
            self.scores(queries, query, ranking, from..n * (part + 1) / parts, |first, scores| {
                for (score, id) in scores.iter().zip(first as u64..) {
                    best.offer(*score, id);
                }
            });
            *found = best.finish();
        });
        Ok(found
            .chunks(parts)
            .map(|lists| {
                let mut all = lists.concat();
                all.sort_unstable_by(Scored::order);
                all.truncate(k);
                all
            })
            .collect())
    }

    /// Refuses queries of another model, and codes that lack what the ranking needs.
    pub(crate) fn check_ranking(&self, queries: &Queries, ranking: Ranking) -> Result<()> {
        self.check_same_hasher(&queries.codes)?;
        if ranking != Ranking::Estimated {
            return Ok(());
        }
        if queries.tables.is_none() {
            let advice = "fit the model from a sketch with a reservoir of rows";
            return Err(factors::missing("the model", advice));
        }
        if self.factors.is_none() {
            return Err(factors::missing("the set of codes", "encode again with factors"));
        }
        Ok(())
    }

    /// Scores of the rows in `range` for one query, handed on block by block with the first row's number.
    /// The caller has checked the ranking.
    pub(crate) fn scores(
        &self,
        queries: &Queries,
        query: usize,
        ranking: Ranking,
        range: std::ops::Range<usize>,
        mut take: impl FnMut(usize, &[f32]),
    ) {
        const BLOCK: usize = 1024;
        let (bits, bytes) = (self.bits(), self.bytes_per_row());
        let values = &queries.values[query * bits..][..bits];
        let tables = match ranking {
            // Signs in place of values: S is then the bits that agree, less those that differ.
            Ranking::Hamming => {
                let sign = |v: &f32| if *v > 0.0 { 1.0 } else { -1.0 };
                Tables::new(&values.iter().map(sign).collect::<Vec<f32>>())
            }
            _ => Tables::new(values),
        };
        let own = queries.square_norms[query];
        let mut scores = [0f32; BLOCK];
        let mut at = range.start;
        while at < range.end {
            let count = BLOCK.min(range.end - at);
            let scores = &mut scores[..count];
            let codes = &self.as_bytes()[at * bytes..(at + count) * bytes];
            tables.sums(codes, scores);
            match (ranking, &self.factors, &queries.tables) {
                (Ranking::Estimated, Some(factors), Some(values)) => {
                    let factors = factors[at * factors::BYTES..].chunks_exact(factors::BYTES);
                    for (s, f) in scores.iter_mut().zip(factors) {
                        let (norm, gain) =
                            (values[0][usize::from(f[0])], values[1][usize::from(f[1])]);
                        *s = norm * norm + own - 2.0 * gain * *s;
                    }
                }
                (Ranking::Hamming, ..) => {
                    scores.iter_mut().for_each(|s| *s = (bits as f32 - *s) / 2.0);
                }
                _ => scores.iter_mut().for_each(|s| *s = -*s),
            }
            take(at, scores);
            at += count;
        }
    }
}

/// For every byte of a code and each of its values: the signed sum of the query's projections.
struct Tables(Vec<[f32; 256]>);

impl Tables {
    fn new(values: &[f32]) -> Self {
        let table = |values: &[f32]| {
            let mut table = [0f32; 256];
            // All bits 0 first; then each bit turns its value's sign.
            table[0] = -values.iter().sum::<f32>();
            for (bit, value) in values.iter().enumerate() {
                for low in 0..1 << bit {
                    table[low | 1 << bit] = table[low] + 2.0 * value;
                }
            }
            table
        };
        Self(values.chunks(8).map(table).collect())
    }

    /// S of each code.
    fn sums(&self, codes: &[u8], out: &mut [f32]) {
        match <&[[f32; 256]; 8]>::try_from(&self.0[..]) {
            // The usual length, unrolled.
            Ok(t) => {
                for (s, c) in out.iter_mut().zip(codes.chunks_exact(8)) {
                    let at = |i: usize| t[i][usize::from(c[i])];
                    *s = ((at(0) + at(1)) + (at(2) + at(3))) + ((at(4) + at(5)) + (at(6) + at(7)));
                }
            }
            Err(_) => {
                for (s, code) in out.iter_mut().zip(codes.chunks_exact(self.0.len())) {
                    let mut parts = [0f32; 4];
                    for (i, (byte, table)) in code.iter().zip(&self.0).enumerate() {
                        parts[i % 4] += table[usize::from(*byte)];
                    }
                    *s = (parts[0] + parts[1]) + (parts[2] + parts[3]);
                }
            }
        }
    }
}

/// The best `k` of what was offered in ascending order of ids.
struct Best<'a> {
    k: usize,
    allowed: Option<&'a IdSet>,
    /// What a score must be below.
    limit: f32,
    found: Vec<Scored>,
}

impl<'a> Best<'a> {
    fn new(k: usize, allowed: Option<&'a IdSet>) -> Self {
        let limit = if k == 0 { f32::NEG_INFINITY } else { f32::INFINITY };
        Self { k, allowed, limit, found: Vec::new() }
    }

    #[inline]
    fn offer(&mut self, score: f32, id: u64) {
        // The set is asked last: few rows come that far.
        if score < self.limit && self.allowed.is_none_or(|set| set.contains(id)) {
            self.found.push(Scored { score, id });
            if self.found.len() >= 2 * self.k + 16 {
                self.prune();
            }
        }
    }

    /// Keeps the best k. A later row of the limit's score has a larger id, so it never counts.
    fn prune(&mut self) {
        if self.found.len() > self.k {
            self.found.select_nth_unstable_by(self.k - 1, Scored::order);
            self.found.truncate(self.k);
            self.limit = self.found[self.k - 1].score;
        }
    }

    fn finish(mut self) -> Vec<Scored> {
        if self.k > 0 {
            self.prune();
        }
        self.found.sort_unstable_by(Scored::order);
        self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Method, Metric, Rotation, Sketcher};

    const DIM: usize = 24;

    fn data(n: usize, seed: u32) -> Vec<f32> {
        let mut state = seed;
        (0..n * DIM)
            .map(|i| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let unit = (state >> 8) as f32 / (1 << 24) as f32 - 0.5;
                unit * 8.0 / (1.0 + (i % DIM) as f32) + 3.0
            })
            .collect()
    }

    fn hasher(method: Method, metric: Metric, bits: usize) -> Hasher {
        let rows = data(600, 1);
        let config = Config::new(DIM).method(method).metric(metric).threads(1);
        let mut sketcher = Sketcher::new(config).unwrap();
        sketcher.push(Rows::new(&rows, DIM).unwrap()).unwrap();
        let rotation = if method == Method::Lsh { Rotation::None } else { Rotation::Random };
        sketcher.finish().hasher_with(bits, rotation).unwrap()
    }

    /// The centred row, and its projections, in double precision.
    fn oracle(hasher: &Hasher, row: &[f32]) -> (Vec<f64>, Vec<f64>) {
        let norm = row.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
        let scale = if hasher.metric() == Metric::Cosine { 1.0 / norm } else { 1.0 };
        let centred: Vec<f64> =
            row.iter().zip(hasher.mean()).map(|(x, m)| f64::from(*x) * scale - m).collect();
        let project = |k| -> f64 {
            centred.iter().zip(hasher.direction(k)).map(|(x, w)| x * f64::from(*w)).sum()
        };
        let projections = (0..hasher.bits()).map(project).collect();
        (centred, projections)
    }

    #[test]
    fn scores_equal_their_definitions() {
        for (method, metric, bits) in [
            (Method::Frosh, Metric::L2, 20),
            (Method::Osh, Metric::Cosine, 16),
            (Method::Lsh, Metric::L2, 64),
            (Method::Lsh, Metric::L2, 100),
        ] {
            let hasher = hasher(method, metric, bits);
            let (base, asked) = (data(50, 2), data(3, 3));
            let pool = Pool::new(2).unwrap();
            let codes = hasher.encode_with_factors(&pool, Rows::new(&base, DIM).unwrap()).unwrap();
            let plain = hasher.encode(Rows::new(&base, DIM).unwrap()).unwrap();
            assert_eq!(codes.as_bytes(), plain.as_bytes());
            let queries = hasher.queries(&pool, Rows::new(&asked, DIM).unwrap()).unwrap();
            assert_eq!(queries.codes(), &hasher.encode(Rows::new(&asked, DIM).unwrap()).unwrap());
            let share = if method == Method::Lsh { 1.0 / bits as f64 } else { 1.0 };
            for (q, query) in asked.chunks(DIM).enumerate() {
                let (y, v) = oracle(&hasher, query);
                let square = |a: &[f64]| a.iter().map(|x| x * x).sum::<f64>();
                for ranking in [Ranking::Hamming, Ranking::Asymmetric, Ranking::Estimated] {
                    codes.scores(&queries, q, ranking, 0..50, |_, scores| {
                        for (i, (score, row)) in scores.iter().zip(base.chunks(DIM)).enumerate() {
                            let (x, u) = oracle(&hasher, row);
                            let s: f64 = u.iter().zip(&v).map(|(u, v)| u.signum() * v).sum();
                            let differ =
                                u.iter().zip(&v).filter(|(u, v)| (**u > 0.0) != (**v > 0.0));
                            let gain = share * square(&u) / u.iter().map(|u| u.abs()).sum::<f64>();
                            let (want, tolerance) = match ranking {
                                Ranking::Hamming => (differ.count() as f64, 0.0),
                                Ranking::Asymmetric => (-s, 1e-4 * square(&v).sqrt()),
                                // Half a step of each scale, which are known to be below 2 %.
                                Ranking::Estimated => (
                                    square(&x) + square(&y) - 2.0 * gain * s,
                                    0.02 * square(&x) + 0.02 * (gain * s).abs() + 1e-3,
                                ),
                            };
                            let got = f64::from(*score);
                            assert!((got - want).abs() <= tolerance, "{ranking} {i}: {got} {want}");
                        }
                    });
                }
            }
        }
    }

    #[test]
    fn ranked_lists_are_the_sorted_scores_for_any_k_and_threads() {
        let hasher = hasher(Method::Frosh, Metric::L2, 20);
        let (base, asked) = (data(9000, 2), data(5, 3));
        let one = Pool::ONE;
        // Rows twice, so that ties occur.
        let twice = [&base[..], &base[..]].concat();
        let codes = hasher.encode_with_factors(&one, Rows::new(&twice, DIM).unwrap()).unwrap();
        let queries = hasher.queries(&one, Rows::new(&asked, DIM).unwrap()).unwrap();
        for ranking in [Ranking::Hamming, Ranking::Asymmetric, Ranking::Estimated] {
            for (q, k) in [(0, 0), (1, 1), (2, 10), (3, 777), (4, 20_000)] {
                let mut want = Vec::new();
                codes.scores(&queries, q, ranking, 0..codes.len(), |first, scores| {
                    want.extend(scores.iter().zip(first as u64..).map(|(s, id)| (*s, id)));
                });
                want.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
                want.truncate(k);
                for threads in [1, 3] {
                    let pool = Pool::new(threads).unwrap();
                    let found = codes.ranked(&pool, &queries, ranking, k).unwrap();
                    let got: Vec<_> = found[q].iter().map(|f| (f.score, f.id)).collect();
                    assert_eq!(got, want, "{ranking} k = {k}, {threads} threads");
                }
            }
        }
    }

    #[test]
    fn what_lacks_factors_is_refused() {
        let rows = data(100, 1);
        let rows = Rows::new(&rows, DIM).unwrap();
        let with = hasher(Method::Frosh, Metric::L2, 16);
        let mut sketcher = Sketcher::new(Config::new(DIM).reservoir_rows(0)).unwrap();
        sketcher.push(rows).unwrap();
        let without = sketcher.finish().hasher(16).unwrap();
        assert!(with.has_factors() && !without.has_factors());
        assert!(matches!(
            without.encode_with_factors(&Pool::ONE, rows),
            Err(crate::Error::Factors { .. })
        ));
        let queries = with.queries(&Pool::ONE, rows).unwrap();
        let mut plain = with.encode(rows).unwrap();
        let refused = plain.ranked(&Pool::ONE, &queries, Ranking::Estimated, 3);
        assert!(matches!(refused, Err(crate::Error::Factors { .. })));
        assert!(plain.ranked(&Pool::ONE, &queries, Ranking::Asymmetric, 3).is_ok());
        assert!(plain.append(&with.encode_with_factors(&Pool::ONE, rows).unwrap()).is_err());
        let other = without.encode(rows).unwrap();
        let refused = other.ranked(&Pool::ONE, &queries, Ranking::Asymmetric, 3);
        assert!(matches!(refused, Err(crate::Error::OtherHasher { .. })));
    }
}
