//! Encoding: rows to codes, and queries to look-up tables.
//!
//! Rows are taken in blocks, on the threads of the current pool. A row's code does not depend on the rows beside it.

use super::Quantizer;
use super::beam::Beam;
use super::codebooks::{Codebooks, Products};
use super::decoder::Decoder;
use super::rounded::Buffers;
use super::scalar::Terms;
use crate::arch::sixteen::{F32x16, Work16, square, weighted_product};
use crate::arch::{Isa, project};
use crate::error::{Error, Result};
use crate::pool::Pool;
use crate::rows::{self, Element, Rows};
use crate::search::codes::Codes;
use crate::search::ranking::{QuantizedTables, Queries};
use std::sync::Arc;

/// Rows that are encoded at a time: their products with all entries stay in the second cache.
const BLOCK: usize = 48;
/// Blocks of a task.
const TASK_BLOCKS: usize = 4;

impl Quantizer {
    /// Encodes rows. The code of a row does not depend on the other rows of the batch.
    ///
    /// # Errors
    ///
    /// [`Error::Dimension`] if the rows have another dimension. [`Error::NotFinite`] or [`Error::TooLarge`] for the first
    /// row with a bad value.
    pub fn encode<T: Element>(&self, rows: Rows<'_, T>) -> Result<Codes> {
        let bytes = self.facts.bytes;
        let mut out = vec![0u8; rows.len() * bytes];
        let per_task = BLOCK * TASK_BLOCKS;
        self.check_dim(&rows)?;
        let mut results: Vec<Result<()>> =
            (0..rows.len().div_ceil(per_task)).map(|_| Ok(())).collect();
        let jobs = results.iter_mut().zip(out.chunks_mut(per_task * bytes)).enumerate().collect();
        // All threads make the tables, before any of them needs them.
        self.tables();
        Pool::current().each(jobs, |(job, (result, out))| {
            let first = job * per_task;
            let rows = rows.slice(first..first + out.len() / bytes);
            *result = self.encode_rows(&rows, out).map_err(|e| e.shift_row(first));
        });
        results.into_iter().collect::<Result<()>>()?;
        Ok(Codes::of_quantizer(bytes, self.id, out))
    }

    /// Prepares queries: projects each row, and computes what each part of a code adds to the distance.
    ///
    /// # Errors
    ///
    /// As [`Quantizer::encode`].
    pub fn queries<T: Element>(&self, rows: Rows<'_, T>) -> Result<Queries> {
        self.check_dim(&rows)?;
        let (k, entries) = (self.books.k, self.books.entries());
        let mut norms = vec![0f32; rows.len()];
        let mut squares = vec![0f32; rows.len()];
        let mut tables = vec![0f32; rows.len() * entries];
        let mut results: Vec<Result<()>> =
            (0..rows.len().div_ceil(BLOCK)).map(|_| Ok(())).collect();
        let jobs = results
            .iter_mut()
            .zip(norms.chunks_mut(BLOCK).zip(squares.chunks_mut(BLOCK)))
            .zip(tables.chunks_mut(BLOCK * entries))
            .enumerate()
            .collect();
        let products = self.products.get_or_init(|| Products::new(&self.books));
        Pool::current().each(jobs, |(job, ((result, (norms, squares)), tables))| {
            let first = job * BLOCK;
            let rows = rows.slice(first..first + norms.len());
            let mut z = vec![0f32; norms.len() * k];
            let mut loaded = Vec::new();
            *result =
                self.project(&rows, &mut loaded, &mut z, norms).map_err(|e| e.shift_row(first));
            // v.c is the product of z / s^2 with the entries, which are scaled.
            for (row, square) in z.chunks_exact_mut(k).zip(squares) {
                *square = row.iter().zip(&self.scales).map(|(x, s)| (x / s) * (x / s)).sum();
                row.iter_mut().zip(&self.scales).for_each(|(x, s)| *x /= s * s);
            }
            products.of(Isa::detect(), &z, tables);
            for table in tables.chunks_exact_mut(entries) {
                let all = table.iter_mut().zip(&self.scalar.prediction);
                all.for_each(|(x, predicted)| *x = predicted - 2.0 * *x);
            }
        });
        results.into_iter().collect::<Result<()>>()?;
        let codes = Codes::of_quantizer(self.facts.bytes, self.id, Vec::new());
        let levels = Arc::new(std::array::from_fn(|i| self.scalar.levels[i]));
        let decoder = self
            .decoder
            .get_or_init(|| Arc::new(Decoder::new(&self.books, &self.scales, &self.scalar)));
        let decoder = Arc::clone(decoder);
        let tables =
            QuantizedTables { entries: tables, per_query: entries, squares, levels, decoder };
        Ok(Queries::of_quantizer(codes, norms, tables))
    }

    fn check_dim<T: Element>(&self, rows: &Rows<'_, T>) -> Result<()> {
        match rows.dim() == self.facts.dim {
            true => Ok(()),
            false => Err(Error::Dimension { expected: self.facts.dim, got: rows.dim() }),
        }
    }

    /// Writes the scaled projections of rows, and the squared lengths of the centred rows.
    fn project<T: Element>(
        &self,
        rows: &Rows<'_, T>,
        loaded: &mut Vec<f32>,
        z: &mut [f32],
        norms: &mut [f32],
    ) -> Result<()> {
        let (n, k, dim) = (rows.len(), self.books.k, self.facts.dim);
        loaded.resize(n * dim, 0.0);
        for (i, (to, norm)) in loaded.chunks_exact_mut(dim).zip(norms).enumerate() {
            rows::load(rows.row(i), i, self.facts.metric, &self.offset, to)?;
            *norm = Isa::detect().sixteens(Square(to));
        }
        let mut bits = vec![0u8; n * k.div_ceil(8)];
        let mut values = vec![0f32; n * self.packed.padded()];
        project::projections(Isa::detect(), &self.packed, loaded, &mut bits, &mut values);
        for (to, from) in z.chunks_exact_mut(k).zip(values.chunks_exact(self.packed.padded())) {
            to.copy_from_slice(&from[..k]);
        }
        Ok(())
    }

    fn encode_rows<T: Element>(&self, rows: &Rows<'_, T>, out: &mut [u8]) -> Result<()> {
        let (k, entries, isa) = (self.books.k, self.books.entries(), Isa::detect());
        let (tables, bytes) = (self.tables(), self.facts.bytes);
        let mut beam = Beam::new(&self.books, self.beam);
        let (mut z, mut norms) = (vec![0f32; BLOCK * k], vec![0f32; BLOCK]);
        let (mut loaded, mut products) = (Vec::new(), vec![0f32; BLOCK * entries]);
        let (length, mut buffer) = (self.books.books + 1, Buffers::default());
        let mut codes = vec![0u8; BLOCK * length];
        let mut decoded = vec![0f32; k];
        let inverses: Vec<f32> = self.scales.iter().map(|s| 1.0 / (s * s)).collect();
        for (b, out) in out.chunks_mut(BLOCK * bytes).enumerate() {
            let first = b * BLOCK;
            let block = rows.slice(first..first + out.len() / bytes);
            self.project(&block, &mut loaded, &mut z, &mut norms)
                .map_err(|e| e.shift_row(first))?;
            let z = &z[..block.len() * k];
            tables.rounded_products(isa, &self.books, z, &mut buffer, &mut products);
            let codes = &mut codes[..block.len() * length];
            beam.encode(isa, &self.books, tables, &products, codes);
            let each = codes.chunks_exact(length).zip(z.chunks_exact(k)).zip(&norms);
            for (out, ((code, z), norm)) in out.chunks_exact_mut(bytes).zip(each) {
                let books = &self.books;
                let row = CodedRow { books, code, z, norm: *norm, inverses: &inverses, gains: &[] };
                let terms = row.terms(isa, &mut decoded);
                let level = self.scalar.encode(code, terms.tau(self.scalar.slopes));
                // The cell, a word of each codebook, and the level of the scalar.
                out[..length].copy_from_slice(code);
                out[length] = level;
            }
        }
        Ok(())
    }
}

/// The squared length of a row.
struct Square<'a>(&'a [f32]);

impl Work16 for Square<'_> {
    type Output = f32;

    #[inline(always)]
    fn run<S: F32x16>(self, s: S) -> f32 {
        square(s, self.0)
    }
}

/// A row and its code.
pub(super) struct CodedRow<'a> {
    pub(super) books: &'a Codebooks,
    pub(super) code: &'a [u8],
    /// Scaled projections.
    pub(super) z: &'a [f32],
    /// The squared length of the centred row.
    pub(super) norm: f32,
    /// 1 / s^2 for the scales s.
    pub(super) inverses: &'a [f32],
    /// By how much the row is decoded worse than by its code: see [`Codebooks::decode_unseen`].
    pub(super) gains: &'a [f32],
}

impl CodedRow<'_> {
    /// The terms of the row's scalar. `decoded` is working memory.
    pub(super) fn terms(&self, isa: Isa, decoded: &mut [f32]) -> Terms {
        struct Work<'a>(&'a CodedRow<'a>, &'a mut [f32]);
        impl Work16 for Work<'_> {
            type Output = Terms;

            #[inline(always)]
            fn run<S: F32x16>(self, s: S) -> Terms {
                let Work(row, decoded) = self;
                row.books.decode_unseen(row.code, row.z, row.gains, decoded);
                let square = weighted_product(s, decoded, decoded, row.inverses);
                let product = weighted_product(s, decoded, row.z, row.inverses);
                Terms::new(square, product, row.norm)
            }
        }
        isa.sixteens(Work(self, decoded))
    }
}
