//! What MAP is measured on: a base, queries that are not in it, and the nearest 2 % of the base to each.
//!
//! **Section 5.2 of the paper**: the true neighbours of a query are the 2 % of the base that are nearest by
//! Euclidean distance. Sets without queries of their own have some rows held out; large ones are sampled, and the
//! records say how many rows were used.

use super::{DataSet, Source};
use crate::error::{Error, Result};
use crate::random::Random;
use frosh::{Codes, Evaluation, ExactSearch, Metric, Rows, Truth};
use std::collections::HashSet;

/// The share of the base that counts as near.
const TRUTH: Truth = Truth::TopShare(0.02);

/// Rows in memory.
pub(crate) struct Memory {
    pub(crate) values: Vec<f32>,
    dim: usize,
}

impl Memory {
    pub(crate) fn new(values: Vec<f32>, dim: usize) -> Self {
        Self { values, dim }
    }

    /// The first `most` rows of a source.
    pub(crate) fn load(source: &dyn Source, most: u64) -> Result<Self> {
        let (dim, most) = (source.dim(), most.min(source.rows()) as usize);
        let mut values = Vec::with_capacity(most * dim);
        source.first(most as u64, &mut |rows| {
            values.extend_from_slice(rows);
            Ok(())
        })?;
        Ok(Self { values, dim })
    }

    pub(crate) fn view(&self) -> Result<Rows<'_, f32>> {
        Ok(Rows::new(&self.values, self.dim)?)
    }

    /// Part `i` of `parts` nearly equal parts.
    pub(crate) fn part(&self, i: usize, parts: usize) -> &[f32] {
        let n = self.values.len() / self.dim;
        &self.values[i * n / parts * self.dim..(i + 1) * n / parts * self.dim]
    }
}

impl Source for Memory {
    fn rows(&self) -> u64 {
        (self.values.len() / self.dim) as u64
    }

    fn dim(&self) -> usize {
        self.dim
    }

    fn first(&self, end: u64, take: &mut dyn FnMut(&[f32]) -> Result<()>) -> Result<()> {
        let end = end.min(self.rows()) as usize * self.dim;
        self.values[..end].chunks(self.batch_rows() * self.dim).try_for_each(take)
    }
}

/// Base, queries, truth.
pub(crate) struct Ground {
    pub(crate) name: String,
    pub(crate) base: Memory,
    pub(crate) queries: Memory,
    near: Vec<Vec<u64>>,
}

impl Ground {
    /// Takes at most `most` rows of a set as the base, and `queries` queries.
    pub(crate) fn new(set: &DataSet, most: u64, queries: u64, seed: u64) -> Result<Self> {
        let rows = set.base.rows();
        let mut random = Random::new(seed, 0x0071_7565_7279);
        let (base, queries) = match &set.queries {
            Some(own) => {
                let chosen = random.choose(most, rows);
                let held = HashSet::new();
                let (base, _) = split(set.base.as_ref(), &chosen, &held)?;
                (base, Memory::load(own.as_ref(), queries)?)
            }
            None => {
                let queries = queries.min(rows / 2);
                let chosen = random.choose(most + queries, rows);
                let held = random.choose(queries, chosen.len() as u64);
                let held = held.into_iter().map(|i| chosen[i as usize]).collect();
                split(set.base.as_ref(), &chosen, &held)?
            }
        };
        Self::of(set.name.clone(), base, queries)
    }

    /// Finds the exact neighbours of queries in a base.
    pub(crate) fn of(name: String, base: Memory, queries: Memory) -> Result<Self> {
        let count = TRUTH.count(base.rows() as usize);
        if count == 0 || queries.rows() == 0 {
            let rows = base.rows() + queries.rows();
            let why = format!("{name} has only {rows} rows: too few to measure on");
            return Err(Error::Usage(why));
        }
        let mut exact = ExactSearch::new(queries.view()?, count, Metric::L2)?;
        exact.push(base.view()?)?;
        let near = exact.finish();
        let near = near.iter().map(|found| found.iter().map(|f| f.id).collect()).collect();
        Ok(Self { name, base, queries, near })
    }

    /// The nearest 2 % of the base to each query, nearest first.
    pub(crate) fn near(&self) -> &[Vec<u64>] {
        &self.near
    }

    /// Measures codes of the queries and the base.
    pub(crate) fn measure(&self, queries: &Codes, base: &Codes) -> Result<Evaluation> {
        Ok(Evaluation::by_neighbours(queries, base, TRUTH, &self.near)?)
    }
}

/// The chosen rows (ascending) but those held, and those held.
fn split(source: &dyn Source, chosen: &[u64], held: &HashSet<u64>) -> Result<(Memory, Memory)> {
    let dim = source.dim();
    let (mut base, mut queries) = (Vec::new(), Vec::new());
    base.reserve_exact((chosen.len() - held.len()) * dim);
    let (mut number, mut next) = (0u64, chosen.iter().peekable());
    source.each(&mut |rows| {
        for row in rows.chunks_exact(dim) {
            if next.next_if_eq(&&number).is_some() {
                let to = if held.contains(&number) { &mut queries } else { &mut base };
                to.extend_from_slice(row);
            }
            number += 1;
        }
        Ok(())
    })?;
    Ok((Memory { values: base, dim }, Memory { values: queries, dim }))
}
