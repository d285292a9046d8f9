//! Chooses rotation, ranking and bytes of factors by measuring them on the sample, and forecasts the recall of a search.
//!
//! **Measures.** MAP and recall on held-out sampled rows: see `held_out.rs`.
//!
//! **Choice.** The regret of an alternative is how far it falls below the best one, in MAP or in recall, whichever is
//! more. Of the rankings in the order asymmetric, estimated with one byte, estimated with two, each with its better
//! rotation, the first is chosen whose regret is within [`TOLERANCE`] of the smallest. So more bytes are used only if
//! they find more. Hamming distances are not tried: the asymmetric ranking uses the same codes and finds more.
//!
//! **Where we differ.** The paper has one rotation (none) and one ranking (Hamming).
//!
//! **Cost.** One product of the n sampled rows with the q queries and the directions; for each of two rotations,
//! products of the sampled rows in r dimensions. Memory: 4 n r bytes for the projections, as much for each rotation,
//! and 64 n bytes for each thread.
//!
//! **Threads.** What depends on the sample alone ([`Truth`]) is computed beside the directions and the rotations, and
//! the rotations are measured side by side. Tasks are pieces of the sample or some of the queries, whose sizes do not
//! depend on the number of threads.

use crate::arch;
use crate::error::Result;
use crate::hasher::estimator::{Factors, MOST_BYTES, Scales};
use crate::hasher::held_out::{
    Figures, Forecast, Found, HeldOut, Neighbours, TASK_QUERIES, rounded,
};
use crate::hasher::positions::Positions;
use crate::hasher::residual::Pairs;
use crate::hasher::{Hasher, ITQ_ROUNDS, Rotation, rotation};
use crate::linalg;
use crate::pool::Pool;
use crate::random::{Purpose, Stream};
use crate::search::ranking::Ranking;
use crate::sketch::{Principal, Sketch};
use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, MatRef, Par};
use serde::{Deserialize, Serialize};

/// Differences of MAP or recall that do not count.
const TOLERANCE: f64 = 0.005;
/// Rows that one task works on.
const PIECE: usize = 512;
/// Bytes of signs up to which rotations are measured side by side.
const SIDE_BY_SIDE: usize = 12 << 20;

/// What a fit measured on the sample, and what it chose.
///
/// ```
/// use frosh::{Config, Rows, Sketcher};
/// # let mut state = 1u32;
/// # let mut next = move || { state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223); (state >> 8) as f32 / 16_777_216.0 };
/// # let data: Vec<f32> = (0..16 * 2000).map(|i| next() / (1 + i % 16) as f32).collect();
/// let mut sketcher = Sketcher::new(Config::new(16))?;
/// sketcher.push(Rows::new(&data, 16)?)?;
/// let hasher = sketcher.finish().hasher(8)?;
/// let choice = hasher.choice().unwrap(); // the sample is large enough to measure
/// assert_eq!(choice.ranking, hasher.ranking());
/// assert!(choice.measured.iter().any(|m| m.ranking == choice.ranking && m.rotation == choice.rotation));
/// println!("recall@{} of about {:.2}", choice.forecast.k, choice.forecast.recall);
/// # Ok::<(), frosh::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Choice {
    /// The rotation of the model.
    pub rotation: Rotation,
    /// The ranking that searches use by default.
    pub ranking: Ranking,
    /// Bytes of factors that the ranking needs for each row.
    pub factor_bytes: usize,
    /// All alternatives, with their figures.
    pub measured: Vec<Measured>,
    /// What to expect from a search.
    pub forecast: Forecast,
}

/// An alternative that a fit measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Measured {
    /// The rotation.
    pub rotation: Rotation,
    /// The ranking.
    pub ranking: Ranking,
    /// Bytes of factors for each row.
    pub factor_bytes: usize,
    /// Mean average precision, with the nearest 2 % of rows as the relevant ones.
    pub map: f64,
    /// Mean of the expected recall@10, @20, @40 and @80 by codes alone.
    pub recall: f64,
}

/// What a fit measures with. It depends on the sample alone.
pub(super) struct Truth {
    neighbours: Neighbours,
    pairs: Option<Pairs>,
}

impl Truth {
    /// `None` if the sample is too small to measure.
    pub(super) fn new(sketch: &Sketch, pool: &Pool) -> Option<Self> {
        let neighbours = Neighbours::new(sketch, pool, usize::MAX)?;
        Some(Self { neighbours, pairs: Pairs::new(sketch, pool) })
    }
}

/// Directions to be rotated.
pub(super) struct Directions {
    pub(super) v: Mat<f64>,
    /// Projections on them of the sampled rows that fits use.
    pub(super) along: Mat<f32>,
    /// Scatter of the sketch along its own directions, and how many of them were learned.
    pub(super) values: Vec<f64>,
    pub(super) rank: usize,
}

/// Fits a hasher with the rotation, ranking and bytes of factors that measure best; `given` bytes of factors, unless that
/// is 0. The caller has checked the bits.
pub(super) fn chosen(sketch: &Sketch, pool: &Pool, bits: usize, given: usize) -> Result<Hasher> {
    let rotated = || {
        let Principal { vectors, values, rank } = sketch.principal(pool, bits);
        let (v, along) = sketch.refined(pool, vectors.as_ref(), &values);
        drop(vectors);
        let mut stream = sketch.rotation_stream();
        let itq = pool.in_rayon(|| rotation::itq(along.as_ref(), &mut stream, ITQ_ROUNDS));
        let random = rotation::random(bits, &mut sketch.rotation_stream());
        let rotations = [(Rotation::Refined, itq), (Rotation::RefinedRandom, random)];
        (Directions { v, along, values, rank }, rotations)
    };
    let ((directions, rotations), truth) = pool.join(rotated, || Truth::new(sketch, pool));
    let possible = |(_, bytes): &(Ranking, usize)| given == 0 || [0, given].contains(bytes);
    let kinds: Vec<_> = KINDS.into_iter().filter(possible).collect();
    Ok(best(sketch, pool, directions, truth, &rotations, &kinds, given.max(1)))
}

/// Fits a hasher with these directions and the best of these rotations and rankings; with the first rotation if the sample
/// is too small to measure. The model makes codes with at least `least` bytes of factors.
pub(super) fn best(
    sketch: &Sketch,
    pool: &Pool,
    directions: Directions,
    truth: Option<Truth>,
    rotations: &[(Rotation, Mat<f64>)],
    kinds: &[(Ranking, usize)],
    least: usize,
) -> Hasher {
    let Directions { v, along, values, rank } = directions;
    let product = |r: &Mat<f64>| linalg::tall_product(pool, v.as_ref(), r.as_ref());
    let Some(Truth { neighbours, pairs }) = truth else {
        let (rotation, r) = &rotations[0];
        return sketch.fitted(pool, product(r), &values, rank, *rotation, least);
    };
    // The rows that fits use are the first ones behind the queries.
    let held = HeldOut::along(neighbours, sketch, pool, v.as_ref(), along.as_ref());
    drop(along);
    let depth = held.depth(sketch.rows);
    let mut tried: Vec<Option<Tried>> = rotations.iter().map(|_| None).collect();
    let jobs: Vec<_> = rotations.iter().zip(&mut tried).collect();
    let work = |((_, r), tried): (&(Rotation, Mat<f64>), &mut Option<Tried>)| {
        let w = linalg::single(product(r).as_ref());
        let scales = sketch.scales_of(pool, w.as_ref(), 1.0, pairs.as_ref());
        let figures = held.measure(pool, r.as_ref(), kinds, &scales);
        *tried = Some(Tried { w, scales, figures });
    };
    // Without room for the signs of all rotations, one after the other.
    let together = rotations.len() * held.base * v.ncols() * 4 <= SIDE_BY_SIDE;
    if together {
        pool.each(jobs, work)
    } else {
        jobs.into_iter().for_each(work)
    }

    let tried: Vec<Tried> = tried.into_iter().flatten().collect();
    let mut alternatives = Vec::new();
    for ((rotation, _), tried) in rotations.iter().zip(&tried) {
        for ((ranking, factor_bytes), figures) in kinds.iter().zip(&tried.figures) {
            let Some(figures) = figures else { continue };
            let (map, recall) = (rounded(figures.map), rounded(figures.top_recall(depth)));
            let measured = Measured {
                rotation: *rotation,
                ranking: *ranking,
                factor_bytes: *factor_bytes,
                map,
                recall,
            };
            alternatives.push((measured, tried, figures));
        }
    }
    let measured: Vec<Measured> = alternatives.iter().map(|(m, ..)| m.clone()).collect();
    let found = choose(&measured);
    let Some((chosen, of, figures)) = alternatives.get(found) else {
        let of = &tried[0];
        let scales = of.scales[least - 1];
        return sketch.assembled(of.w.as_ref(), &values, rank, rotations[0].0, scales);
    };
    let Measured { rotation, ranking, factor_bytes, .. } = *chosen;
    let scales = of.scales[factor_bytes.max(least) - 1];
    let mut hasher = sketch.assembled(of.w.as_ref(), &values, rank, rotation, scales);
    let forecast = figures.forecast(depth, sketch.rows);
    hasher.choice = Some(Box::new(Choice { rotation, ranking, factor_bytes, measured, forecast }));
    hasher
}

/// A rotation that was measured.
struct Tried {
    /// The rotated directions.
    w: Mat<f32>,
    scales: [Option<Scales>; MOST_BYTES],
    /// The figures of each ranking; `None` if it needs factors that the fit could not make.
    figures: Vec<Option<Figures>>,
}

/// Rankings and their bytes of factors, in the order of cost.
const KINDS: [(Ranking, usize); 3] =
    [(Ranking::Asymmetric, 0), (Ranking::Estimated, 1), (Ranking::Estimated, 2)];

/// The alternative to use: see the head of this file.
fn choose(measured: &[Measured]) -> usize {
    let best = |figure: fn(&Measured) -> f64| measured.iter().map(figure).fold(0.0, f64::max);
    let (map, recall) = (best(|m| m.map), best(|m| m.recall));
    let regret = |m: &Measured| (map - m.map).max(recall - m.recall);
    let least = measured.iter().map(regret).fold(f64::INFINITY, f64::min);
    let of_kind = |(ranking, bytes): (Ranking, usize)| {
        let same = |m: &Measured| (m.ranking, m.factor_bytes) == (ranking, bytes);
        let all = measured.iter().enumerate().filter(|(_, m)| same(m));
        all.min_by(|a, b| regret(a.1).total_cmp(&regret(b.1)))
    };
    let found = KINDS.into_iter().filter_map(of_kind).find(|(_, m)| regret(m) <= least + TOLERANCE);
    found.map_or(0, |(number, _)| number)
}

impl Sketch {
    /// The random numbers that rotations start from.
    pub(super) fn rotation_stream(&self) -> Stream {
        Stream::new(self.seed, Purpose::Rotation, 0, 0)
    }
}

/// The constant and the factor of each row of the base in the score c - g S of a ranking.
struct Terms {
    constants: Vec<f32>,
    factors: Vec<f32>,
}

impl HeldOut {
    /// Measures rankings after a rotation of the directions.
    fn measure(
        &self,
        pool: &Pool,
        r: MatRef<'_, f64>,
        kinds: &[(Ranking, usize)],
        scales: &[Option<Scales>; MOST_BYTES],
    ) -> Vec<Option<Figures>> {
        let r = linalg::single(r);
        let (signs, lengths) = self.signs(pool, r.as_ref());
        let terms: Vec<Option<Terms>> =
            kinds.iter().map(|kind| self.terms(pool, &lengths, *kind, scales)).collect();
        let (of_base, of_queries) = self.along.as_ref().split_at_row(self.base);
        debug_assert_eq!((of_base.nrows(), of_queries.nrows()), (self.base, self.queries));
        let mut found = vec![vec![Found::default(); kinds.len()]; self.queries];
        pool.each(found.chunks_mut(TASK_QUERIES).enumerate().collect(), |(task, found)| {
            let own = of_queries.subrows(task * TASK_QUERIES, found.len());
            let asked = linalg::product(r.transpose(), own.transpose());
            // The sums of all rows with these queries.
            let mut sums = Mat::<f32>::zeros(self.base, found.len());
            for ((_, to), signs) in linalg::row_pieces(sums.as_mut(), PIECE).into_iter().zip(&signs)
            {
                matmul(to, Accum::Replace, signs.as_ref(), asked.as_ref(), 1.0, Par::Seq);
            }
            let (mut positions, mut scores) = (Positions::default(), vec![0f32; self.base]);
            for (i, found) in found.iter_mut().enumerate() {
                let (query, sums) = (task * TASK_QUERIES + i, sums.col_as_slice(i));
                for (found, terms) in found.iter_mut().zip(&terms) {
                    let Some(Terms { constants, factors }) = terms else { continue };
                    arch::scores(constants, factors, sums, &mut scores);
                    *found = self.found(query, &scores, &mut positions);
                }
            }
        });
        let mut found: Vec<_> = found.into_iter().map(Vec::into_iter).collect();
        let mut figures = |terms: &Option<Terms>| {
            let own = found.iter_mut().filter_map(Iterator::next).collect();
            terms.as_ref().map(|_| Figures::new(own))
        };
        terms.iter().map(&mut figures).collect()
    }

    /// The signs of the rows of the base after a rotation, [`PIECE`] rows together, and |u|^2 and |u|_1 of each row.
    fn signs(&self, pool: &Pool, r: MatRef<'_, f32>) -> (Vec<Mat<f32>>, Vec<(f64, f64)>) {
        let mut signs = vec![Mat::new(); self.base.div_ceil(PIECE)];
        let mut lengths = vec![(0.0, 0.0); self.base];
        let jobs = signs.iter_mut().zip(lengths.chunks_mut(PIECE)).enumerate();
        pool.each(jobs.collect(), |(piece, (signs, lengths))| {
            let rows = self.along.as_ref().subrows(piece * PIECE, lengths.len());
            let mut u = linalg::product(rows, r);
            for k in 0..r.ncols() {
                for (x, (squares, magnitudes)) in
                    u.col_as_slice_mut(k).iter_mut().zip(&mut *lengths)
                {
                    *squares += f64::from(*x * *x);
                    *magnitudes += f64::from(x.abs());
                    *x = sign(*x);
                }
            }
            *signs = u;
        });
        (signs, lengths)
    }

    /// The terms of a ranking; `None` if it needs factors that the fit could not make.
    fn terms(
        &self,
        pool: &Pool,
        lengths: &[(f64, f64)],
        (ranking, bytes): (Ranking, usize),
        scales: &[Option<Scales>; MOST_BYTES],
    ) -> Option<Terms> {
        let (mut constants, mut factors) = (vec![0f32; self.base], vec![1f32; self.base]);
        if ranking == Ranking::Estimated {
            let scales = scales[bytes - 1]?;
            let tables = scales.tables();
            let rows = lengths.chunks(PIECE).zip(self.squares.chunks(PIECE));
            let terms = constants.chunks_mut(PIECE).zip(factors.chunks_mut(PIECE));
            pool.each(rows.zip(terms).collect(), |((lengths, all), (constants, factors))| {
                let rows = lengths.iter().zip(all).zip(constants.iter_mut().zip(factors));
                for (((squares, magnitudes), square), (constant, factor)) in rows {
                    let mut coded = [0u8; MOST_BYTES];
                    let own = Factors::of(*square, *squares, *magnitudes, 1.0, scales.residual());
                    scales.encode(own, &mut coded[..bytes]);
                    let norm = tables[0][usize::from(coded[0])];
                    *constant = norm * norm;
                    *factor = 2.0 * tables[1][usize::from(coded[bytes - 1])];
                }
            });
        }
        Some(Terms { constants, factors })
    }
}

fn sign(x: f32) -> f32 {
    if x > 0.0 { 1.0 } else { -1.0 }
}

#[cfg(test)]
mod tests;
