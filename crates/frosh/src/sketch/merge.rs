//! Merging sketches: DFROSH, Algorithm 3 of the paper.

use super::{MAX_ROWS, Method, Sketch};
use crate::error::{Error, Result};
use crate::pool::Pool;
use crate::sketch::frequent_directions::{FrequentDirections, square_norm};
use std::borrow::Cow;
use std::cmp::Ordering;

impl Sketch {
    /// Merges sketches into one of all their rows (DFROSH, Algorithm 3 of the paper). The inputs are not changed.
    ///
    /// Takes O(d l^2) time for each sketch after the first. Merges can be nested in any order.
    ///
    /// Sketches with a half-life are first brought to the latest of their [clocks](Sketch::clock): the rows of a sketch
    /// whose clock is H rows behind count half.
    ///
    /// # Errors
    ///
    /// [`Error::Empty`] without sketches. [`Error::Merge`] if dimension, metric, shrink index or half-life differ, or
    /// if LSH sketches are mixed with others. [`Error::Setting`] if the row counts sum to more than 2^62.
    ///
    /// ```
    /// use frosh::{Config, Rows, Sketch, Sketcher};
    /// # let data: Vec<f32> = (0..16 * 500).map(|i| ((i * i) % 97) as f32).collect();
    /// let mut sketches = Vec::new();
    /// for (worker, shard) in data.chunks(16 * 250).enumerate() {
    ///     let mut sketcher = Sketcher::new(Config::new(16).worker(worker as u64))?;
    ///     sketcher.push(Rows::new(shard, 16)?)?;
    ///     sketches.push(sketcher.finish());
    /// }
    /// let merged = Sketch::merge(&sketches)?;
    /// assert_eq!((merged.rows(), merged.workers()), (500, &[0, 1][..]));
    /// # Ok::<(), frosh::Error>(())
    /// ```
    pub fn merge<'a>(sketches: impl IntoIterator<Item = &'a Sketch>) -> Result<Sketch> {
        let pool = &Pool::current();
        let mut parts: Vec<&Sketch> = sketches.into_iter().collect();
        // By their numbers first: an error names two sketches of the same worker in the order of the arguments.
        parts.sort_by(|a, b| a.workers.cmp(&b.workers));
        let Some((first, others)) = parts.split_first() else { return Err(Error::Empty) };
        for other in others {
            first.check_mergeable(other)?;
        }
        parts.sort_by(|a, b| a.merge_order(b));
        let Some((first, others)) = parts.split_first() else { return Err(Error::Empty) };
        let rows = parts.iter().try_fold(0u64, |sum, part| sum.checked_add(part.rows));
        if rows.is_none_or(|rows| rows > MAX_ROWS) {
            let why = format!("their row counts sum to more than {MAX_ROWS}");
            return Err(Error::setting("sketches", parts.len(), why));
        }
        let capacity = parts.iter().map(|p| p.sketch_rows()).min().unwrap_or(2);
        // An empty sketch has nothing that could be newer than the rows of the others.
        let clock = parts.iter().filter(|part| part.rows > 0).map(|part| part.clock()).max();
        let clock = clock.unwrap_or_else(|| first.clock());
        let mut merged = (*first).clone();
        if capacity < first.sketch_rows() {
            merged.directions =
                FrequentDirections::new(first.dim, capacity, first.directions.index());
            merged.insert(pool, first, 1.0);
        }
        merged.age_to(clock);
        for other in others {
            merged.add(pool, other, clock);
            merged.left_out = merged.left_out.saturating_add(other.left_out);
            merged.workers.extend(&other.workers);
            merged.workers.sort_unstable();
            merged.reservoir.merge(&other.reservoir);
        }
        merged.reservoir.put_in_order();
        Ok(merged)
    }

    /// The sketch of this part of a stream and of the part that follows it, in as little memory as its rows need. Both are
    /// without samples. `work` lends its work space.
    pub(super) fn followed_by(
        mut self,
        pool: &Pool,
        next: &Sketch,
        work: &mut FrequentDirections,
    ) -> Sketch {
        let clock = next.clock();
        self.directions.swap_work_space(work);
        self.age_to(clock);
        self.add(pool, next, clock);
        self.directions.compact(pool);
        self.directions.swap_work_space(work);
        self.directions.fit_memory();
        self
    }

    /// Reduces the weights to what they are at the clock `at`.
    pub(super) fn age_to(&mut self, at: u64) {
        let factor = self.factor_at(at);
        if let Some(decay) = &mut self.decay {
            self.directions.decay(factor);
            (decay.clock, decay.weight) = (at, decay.weight * factor);
        }
    }

    /// Adds the rows of another sketch at the clock `at`, which is that of this sketch. Workers, samples and rows left out
    /// are not added.
    pub(super) fn add(&mut self, pool: &Pool, other: &Sketch, at: u64) {
        let factor = other.factor_at(at);
        let weight = other.weight() * factor;
        if self.rows > 0 && other.rows > 0 {
            self.step_between_means(pool, other, weight);
        }
        self.insert(pool, other, factor);
        let total = match &mut self.decay {
            Some(decay) => {
                decay.weight += weight;
                // Both may have no weight left, or no rows.
                decay.weight.max(f64::MIN_POSITIVE)
            }
            None => (self.rows + other.rows).max(1) as f64,
        };
        let share = weight / total;
        for (phi, mu) in self.mean.iter_mut().zip(&other.mean) {
            *phi += share * (mu - *phi);
        }
        self.rows += other.rows;
        self.compressed |= other.compressed;
    }

    /// The order of merging: by worker numbers. Sketches of the same workers are ordered by their content, so that the
    /// order of arguments does not matter for them either.
    fn merge_order(&self, other: &Sketch) -> Ordering {
        let means = || {
            let pairs = self.mean.iter().zip(&other.mean);
            pairs
                .map(|(a, b)| a.total_cmp(b))
                .find(|order| order.is_ne())
                .unwrap_or(Ordering::Equal)
        };
        let by_number = self.workers.cmp(&other.workers).then(self.rows.cmp(&other.rows));
        by_number.then_with(means).then_with(|| self.to_bytes().cmp(&other.to_bytes()))
    }

    /// Inserts the sketched rows of another sketch, whose weights are multiplied by `factor`, and adds its certificate.
    fn insert(&mut self, pool: &Pool, other: &Sketch, factor: f64) {
        let mut directions = Cow::Borrowed(&other.directions);
        if factor < 1.0 {
            directions.to_mut().decay(factor);
        }
        let live = directions.live();
        self.directions.append(pool, live);
        let kept: f64 = live.chunks_exact(self.dim).map(square_norm).sum();
        let lost = (directions.inserted() - kept).max(0.0);
        self.directions.inherit(directions.removed(), lost);
    }

    /// Inserts the row of Algorithm 3 for the difference of the two means. `n` is the weight of the other sketch.
    fn step_between_means(&mut self, pool: &Pool, other: &Sketch, n: f64) {
        let tau = self.weight();
        if tau + n == 0.0 {
            return;
        }
        let scale = (tau * n / (tau + n)).sqrt();
        let pairs = other.mean.iter().zip(&self.mean);
        let step: Vec<f32> = pairs.map(|(mu, phi)| (scale * (mu - phi)) as f32).collect();
        if self.method != Method::Lsh {
            self.directions.append(pool, &step);
        }
    }

    /// Checks whether this sketch can be merged with another.
    ///
    /// # Errors
    ///
    /// [`Error::Merge`] with the property that differs.
    pub fn check_mergeable(&self, other: &Sketch) -> Result<()> {
        let differ = |what, left: &dyn ToString, right: &dyn ToString| {
            let (left, right) = (left.to_string(), right.to_string());
            if left == right { Ok(()) } else { Err(Error::Merge { what, left, right }) }
        };
        differ("the dimension", &self.dim, &other.dim)?;
        differ("the metric", &self.metric, &other.metric)?;
        differ("the shrink index", &self.directions.index(), &other.directions.index())?;
        let half_life = |s: &Sketch| s.half_life().map_or("none".into(), |rows| rows.to_string());
        differ("the half-life", &half_life(self), &half_life(other))?;
        // FROSH and OSH both sketch the scatter; LSH learns no directions.
        let learns = |s: &Sketch| if s.method == Method::Lsh { "lsh" } else { "frosh or osh" };
        differ("the method", &learns(self), &learns(other))
    }
}
