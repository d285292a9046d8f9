//! Encoding: rows to codes, with or without factors, and to the projections that queries keep.
//!
//! Rows are taken in blocks that stay in cache, on the threads of the current pool. A row's code does not depend on the
//! rows beside it.

use super::estimator::{self, FactorColumn, Factors};
use super::fit::share;
use super::{Hasher, Projected};
use crate::arch::{Isa, project};
use crate::error::{Error, Result};
use crate::pool::Pool;
use crate::rows::{self, Element, Metric, Rows};
use crate::search::codes::Codes;

/// Rows that are encoded at a time: a multiple of the kernel's tile, and few enough to stay in cache.
const ENCODE_ROWS: usize = 192;

impl Hasher {
    /// Encodes rows. The code of a row does not depend on the other rows of the batch. 2 d r operations and ceil(r / 8)
    /// bytes for each row of d values, with r bits.
    ///
    /// # Errors
    ///
    /// [`Error::Dimension`] if the rows have another dimension. [`Error::NotFinite`] or [`Error::TooLarge`] for the first
    /// row with a bad value.
    ///
    /// ```
    /// # use frosh::{Config, Rows, Sketcher};
    /// # let data: Vec<f32> = (0..6400).map(|i| ((i * 31) % 101) as f32).collect();
    /// # let mut sketcher = Sketcher::new(Config::new(32))?;
    /// # sketcher.push(Rows::new(&data, 32)?)?;
    /// let hasher = sketcher.finish().hasher(16)?;
    /// let codes = hasher.encode(Rows::new(&data, 32)?)?;
    /// assert_eq!((codes.len(), codes.bytes_per_row()), (200, 2));
    /// // Bit k is the sign of the centred projection on direction k.
    /// let centred = data[..32].iter().zip(hasher.mean()).map(|(x, m)| f64::from(*x) - m);
    /// let projection: f64 = centred.zip(hasher.direction(3)).map(|(x, w)| x * f64::from(*w)).sum();
    /// assert_eq!(codes.bit(0, 3), projection > 0.0);
    /// # Ok::<(), frosh::Error>(())
    /// ```
    pub fn encode<T: Element>(&self, rows: Rows<'_, T>) -> Result<Codes> {
        let mut data = vec![0u8; rows.len() * self.facts.bits.div_ceil(8)];
        self.each_block(&Pool::current(), rows, &mut data, &mut [], &mut [], |_, _, _| {})?;
        Ok(Codes::new(self.facts.bits, self.id, data))
    }

    /// Encodes rows, with one or two bytes of factors for each row, which
    /// [`Ranking::Estimated`](crate::Ranking::Estimated) needs. Costs one more pass over each row.
    ///
    /// # Errors
    ///
    /// Those of [`Hasher::encode`], and [`Error::Factors`] if the model has no factors.
    ///
    /// ```
    /// use frosh::{Config, Ranking, Rows, Search, Sketcher};
    /// # let data: Vec<f32> = (0..6400).map(|i| ((i * 31) % 101) as f32).collect();
    /// # let mut sketcher = Sketcher::new(Config::new(32))?;
    /// # sketcher.push(Rows::new(&data, 32)?)?;
    /// let hasher = sketcher.finish().hasher(16)?;
    /// let codes = hasher.encode_with_factors(Rows::new(&data, 32)?)?;
    /// assert_eq!(codes.stored_bytes_per_row(), 3); // 16 bits and the factors
    /// let queries = hasher.queries(Rows::new(&data[..32], 32)?)?;
    /// let hits = codes.search(&queries, &Search::nearest(5).ranking(Ranking::Estimated))?;
    /// # Ok::<(), frosh::Error>(())
    /// ```
    pub fn encode_with_factors<T: Element>(&self, rows: Rows<'_, T>) -> Result<Codes> {
        let advice = "fit the model from a sketch with a reservoir of rows";
        let scales = self.scales.ok_or_else(|| estimator::missing("the model", advice))?;
        let mut data = vec![0u8; rows.len() * self.facts.bits.div_ceil(8)];
        let width = scales.bytes();
        let mut factors = vec![0u8; rows.len() * width];
        let (share, residual) = (share(self.facts.method, self.facts.bits), scales.residual());
        let work = |norm, projections: &[f32], out: &mut [u8]| {
            scales.encode(Factors::new(norm, projections, share, residual), out);
        };
        self.each_block(&Pool::current(), rows, &mut data, &mut factors, &mut [], work)?;
        let mut codes = Codes::new(self.facts.bits, self.id, data);
        codes.factors = Some(FactorColumn { bytes: width, data: factors.into() });
        Ok(codes)
    }

    /// Codes, projections and lengths of rows.
    pub(crate) fn project<T: Element>(&self, pool: &Pool, rows: Rows<'_, T>) -> Result<Projected> {
        let bits = self.facts.bits;
        let mut data = vec![0u8; rows.len() * bits.div_ceil(8)];
        let mut values = vec![0f32; rows.len() * (bits + 1)];
        self.each_block(pool, rows, &mut data, &mut [], &mut values, |_, _, _| {})?;
        let square_norms = values.chunks_exact(bits + 1).map(|v| f64::from(v[bits])).collect();
        let values = values.chunks_exact(bits + 1).flat_map(|v| &v[..bits]).copied().collect();
        Ok(Projected { codes: Codes::new(bits, self.id, data), values, square_norms })
    }

    /// Encodes rows in blocks on the threads of `pool`. If `factors` is not empty, `work` is called with each row's
    /// squared length and projections, and writes its factor bytes. If `values` is not empty, it receives the
    /// projections of each row, followed by the squared length.
    fn each_block<T: Element>(
        &self,
        pool: &Pool,
        rows: Rows<'_, T>,
        data: &mut [u8],
        factors: &mut [u8],
        values: &mut [f32],
        work: impl Fn(f64, &[f32], &mut [u8]) + Sync,
    ) -> Result<()> {
        let (dim, bytes) = (self.facts.dim, self.facts.bits.div_ceil(8));
        if rows.dim() != dim {
            return Err(Error::Dimension { expected: dim, got: rows.dim() });
        }
        let blocks = rows.len().div_ceil(ENCODE_ROWS);
        // A few tasks for each thread, so that few buffers are allocated.
        let per_task = blocks.div_ceil(4 * pool.threads()).max(1) * ENCODE_ROWS;
        let tasks = rows.len().div_ceil(per_task);
        let mut results: Vec<Result<()>> = (0..tasks).map(|_| Ok(())).collect();
        let width = self.factor_bytes().max(1);
        let mut factors = factors.chunks_mut(per_task * width);
        let mut values = values.chunks_mut(per_task * (self.facts.bits + 1));
        let jobs = results
            .iter_mut()
            .zip(data.chunks_mut(per_task * bytes))
            .map(|job| (job, factors.next().unwrap_or_default(), values.next().unwrap_or_default()))
            .enumerate()
            .collect();
        pool.each(jobs, |(task, ((result, out), factors, values))| {
            let first = task * per_task;
            let rows = rows.slice(first..first + out.len() / bytes);
            let done = self.encode_rows(&rows, out, factors, values, &work);
            *result = done.map_err(|e| e.shift_row(first));
        });
        results.into_iter().collect()
    }

    fn encode_rows<T: Element>(
        &self,
        rows: &Rows<'_, T>,
        out: &mut [u8],
        factors: &mut [u8],
        values: &mut [f32],
        work: &impl Fn(f64, &[f32], &mut [u8]),
    ) -> Result<()> {
        let (dim, bits) = (self.facts.dim, self.facts.bits);
        let bytes = bits.div_ceil(8);
        let isa = Isa::detect();
        let zero = vec![0f32; dim];
        let offset = if self.offset.is_empty() { &zero } else { &self.offset };
        let unchanged = self.facts.metric == Metric::L2 && self.offset.is_empty();
        let plain = factors.is_empty() && values.is_empty();
        let width = self.factor_bytes().max(1);
        let (mut buffer, mut projections) = (Vec::new(), Vec::new());
        for (b, out) in out.chunks_mut(ENCODE_ROWS * bytes).enumerate() {
            let first = b * ENCODE_ROWS;
            let block = rows.slice(first..first + out.len() / bytes);
            let loaded = match T::as_f32(block.as_slice()) {
                Some(values) if unchanged => {
                    rows::check(&block).map_err(|e| e.shift_row(first))?;
                    values
                }
                _ => {
                    buffer.resize(block.len() * dim, 0f32);
                    for (i, to) in buffer.chunks_exact_mut(dim).enumerate() {
                        rows::load(block.row(i), first + i, self.facts.metric, offset, to)?;
                    }
                    &buffer
                }
            };
            if plain {
                project::sign_bits(isa, &self.packed, loaded, out);
                continue;
            }
            let padded = self.packed.padded();
            projections.resize(block.len() * padded, 0f32);
            project::projections(isa, &self.packed, loaded, out, &mut projections);
            for (i, (row, u)) in
                loaded.chunks_exact(dim).zip(projections.chunks_exact(padded)).enumerate()
            {
                let norm = estimator::square_norm(row, &self.rest);
                if let Some(bytes) = factors.chunks_exact_mut(width).nth(first + i) {
                    work(norm, &u[..bits], bytes);
                }
                if let Some(kept) = values.chunks_exact_mut(bits + 1).nth(first + i) {
                    kept[..bits].copy_from_slice(&u[..bits]);
                    kept[bits] = norm as f32;
                }
            }
        }
        Ok(())
    }
}
