//! The exact score of rows for one query, as defined on the module page of `search`. Each byte of a code is one look-up
//! in a table of 256 sums.

use super::{QuantizedTables, Queries, Ranking};
use crate::search::codes::Codes;
use std::ops::Range;

/// Rows that are scored at a time.
const BLOCK_ROWS: usize = 1024;

/// Scores rows for one query. The caller has checked the ranking.
#[derive(Clone)]
pub(super) struct Scorer<'a> {
    codes: &'a Codes,
    ranking: Ranking,
    tables: Tables,
    /// Decoding tables of the factors: the norm and the gain for each value of their byte.
    values: Option<&'a [[f32; 256]; 2]>,
    /// Squared length of the centred query.
    square_norm: f32,
}

impl<'a> Scorer<'a> {
    pub(super) fn new(
        codes: &'a Codes,
        queries: &'a Queries,
        query: usize,
        ranking: Ranking,
    ) -> Self {
        if let Some(tables) = &queries.quantized {
            let square_norm = queries.square_norms[query];
            let tables = Tables::quantized(tables, query, codes.bytes_per_row());
            return Self { codes, ranking, tables, values: None, square_norm };
        }
        let values = queries.projections(query);
        let tables = match ranking {
            // Signs in place of projections: S is then the number of equal bits minus the number of different bits.
            Ranking::Hamming => {
                let sign = |v: &f32| if *v > 0.0 { 1.0 } else { -1.0 };
                Tables::new(&values.iter().map(sign).collect::<Vec<f32>>())
            }
            _ => Tables::new(values),
        };
        let values = queries.tables.as_deref();
        Self { codes, ranking, tables, values, square_norm: queries.square_norms[query] }
    }

    pub(super) fn ranking(&self) -> Ranking {
        self.ranking
    }

    pub(super) fn square_norm(&self) -> f32 {
        self.square_norm
    }

    /// Scores the rows in `range`. Calls `consume` for each block, with the number of its first row.
    pub(super) fn score_range(&self, range: Range<usize>, mut consume: impl FnMut(usize, &[f32])) {
        let mut scores = [0f32; BLOCK_ROWS];
        let mut at = range.start;
        while at < range.end {
            let count = BLOCK_ROWS.min(range.end - at);
            self.score_block(at, &mut scores[..count]);
            consume(at, &scores[..count]);
            at += count;
        }
    }

    /// The score of one row.
    pub(super) fn score(&self, row: usize) -> f32 {
        let mut score = [0f32];
        self.score_block(row, &mut score);
        score[0]
    }

    /// The score of a quantiser's code; bit for bit that of a row with this code.
    #[inline]
    pub(super) fn score_code(&self, code: &[u8]) -> f32 {
        let mut score = [0f32];
        self.tables.sums(code, &mut score);
        score[0] + self.square_norm
    }

    #[inline]
    fn score_block(&self, at: usize, scores: &mut [f32]) {
        let bytes = self.codes.bytes_per_row();
        self.tables.sums(&self.codes.as_bytes()[at * bytes..][..scores.len() * bytes], scores);
        match (self.ranking, &self.codes.factors, self.values) {
            (Ranking::Estimated, Some(factors), Some(values)) => {
                for (s, (norm, gain)) in scores.iter_mut().zip(factors.from(at)) {
                    let (norm, gain) = (values[0][norm], values[1][gain]);
                    *s = norm * norm + self.square_norm - 2.0 * gain * *s;
                }
            }
            _ if self.codes.is_quantized() => {
                scores.iter_mut().for_each(|s| *s += self.square_norm);
            }
            (Ranking::Hamming, ..) => {
                let bits = self.codes.bits() as f32;
                scores.iter_mut().for_each(|s| *s = (bits - *s) / 2.0);
            }
            _ => scores.iter_mut().for_each(|s| *s = -*s),
        }
    }
}

/// For each byte position of a code, and each value of that byte: the signed sum of the query's projections.
#[derive(Clone)]
struct Tables(Vec<[f32; 256]>);

impl Tables {
    fn new(values: &[f32]) -> Self {
        let table = |values: &[f32]| {
            let mut table = [0f32; 256];
            // Entry 0 has all signs negative. Setting a bit flips the sign of its value.
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

    /// The tables of a query of a quantiser: a cell, a word of each codebook, and the level of the scalar.
    fn quantized(tables: &QuantizedTables, query: usize, bytes: usize) -> Self {
        let all: Vec<[f32; 256]> =
            tables.of(query).as_chunks().0.iter().chain([&*tables.levels]).copied().collect();
        assert_eq!(all.len(), bytes, "a table for each byte");
        Self(all)
    }

    /// S of each code.
    fn sums(&self, codes: &[u8], out: &mut [f32]) {
        match <&[[f32; 256]; 8]>::try_from(&self.0[..]) {
            // 64 bits, the usual length: unrolled.
            Ok(t) => {
                for (s, c) in out.iter_mut().zip(codes.chunks_exact(8)) {
                    let at = |i: usize| t[i][usize::from(c[i])];
                    *s = ((at(0) + at(1)) + (at(2) + at(3))) + ((at(4) + at(5)) + (at(6) + at(7)));
                }
            }
            Err(_) => {
                for (s, code) in out.iter_mut().zip(codes.chunks_exact(self.0.len())) {
                    let (eights, rest) = code.as_chunks::<8>();
                    let (tables, others) = self.0.as_chunks::<8>();
                    let mut parts = [0f32; 8];
                    for (bytes, tables) in eights.iter().zip(tables) {
                        for ((part, byte), table) in parts.iter_mut().zip(bytes).zip(tables) {
                            *part += table[usize::from(*byte)];
                        }
                    }
                    for ((part, byte), table) in parts.iter_mut().zip(rest).zip(others) {
                        *part += table[usize::from(*byte)];
                    }
                    *s = parts.iter().sum();
                }
            }
        }
    }
}
