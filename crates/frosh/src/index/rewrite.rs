//! Writes rows of existing segments to new segments, in the order of their ids: with the same codes, or encoded again by
//! another model.

use super::journal::Journal;
use super::manifest::{Manifest, SegmentFacts};
use super::segment::{self, Segment};
use super::segment_writer::{NewPart, SegmentWriter};
use super::version::Version;
use super::writer::{MAX_SEGMENT_ROWS, number};
use super::{Index, Layout, StoredVectors};
use crate::error::{Error, Result};
use crate::model::Model;
use crate::rows::Rows;
use crate::search::codes::Codes;
use crate::search::hamming::IdSet;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::path::Path;
use std::sync::Arc;

/// Rows that are encoded at a time.
const BATCH_ROWS: usize = 4096;

/// Rows of a segment that are written again.
pub(super) struct Chosen<'a> {
    pub(super) segment: &'a Arc<Segment>,
    /// Their row numbers.
    pub(super) rows: IdSet,
    /// New codes of some of them, by a source of vectors outside the index.
    pub(super) given: Option<&'a GivenCodes>,
}

impl<'a> Chosen<'a> {
    /// All rows of a segment that are not removed.
    pub(super) fn all(segment: &'a Arc<Segment>) -> Self {
        Self { segment, rows: segment.live_rows(), given: None }
    }
}

/// New codes of rows of a segment.
pub(super) struct GivenCodes {
    /// Codes and factors of all rows; zeros for rows that are not given.
    codes: Vec<u8>,
    factors: Vec<u8>,
    pub(super) rows: IdSet,
}

impl GivenCodes {
    pub(super) fn new(rows: usize, layout: &Layout) -> Self {
        let bytes = |width: usize| vec![0; rows * width];
        let (codes, factors) = (layout.empty.bytes_per_row(), layout.factors.unwrap_or(0));
        Self { codes: bytes(codes), factors: bytes(factors), rows: IdSet::new() }
    }

    /// Sets the code of a row to that of row `i` of `codes`.
    pub(super) fn set(&mut self, row: usize, codes: &Codes, i: usize) {
        let code = codes.row(i);
        self.codes[row * code.len()..][..code.len()].copy_from_slice(code);
        if let Some(factors) = &codes.factors {
            let (width, data) = (factors.bytes, &factors.data);
            self.factors[row * width..][..width].copy_from_slice(&data[i * width..][..width]);
        }
        self.rows.insert(row as u64);
    }
}

/// How the codes of the new segments are made.
pub(super) enum Coding<'a> {
    /// The codes stay as they are.
    Copy(&'a Version),
    /// The rows are encoded by this model, from given codes or from stored vectors.
    Again(&'a Model, &'a Layout),
}

impl Coding<'_> {
    fn layout(&self) -> &Layout {
        match self {
            Coding::Copy(version) => &version.layout,
            Coding::Again(_, layout) => layout,
        }
    }
}

/// Writes the chosen rows to new segments. Returns their facts, without the model. The caller has verified the arrays.
pub(super) fn rewrite(
    index: &Index,
    manifest: &mut Manifest,
    journal: &mut Journal,
    chosen: &[Chosen<'_>],
    coding: &Coding<'_>,
) -> Result<Vec<SegmentFacts>> {
    let mut output = Output {
        folder: &index.folder,
        next_number: &mut manifest.next_number,
        journal,
        layout: coding.layout(),
        writers: Vec::new(),
    };
    let mut left: Vec<_> = chosen.iter().map(|chosen| chosen.rows.iter()).collect();
    let mut next = |s: usize| {
        let row = left[s].next()? as usize;
        Some(Reverse((chosen[s].segment.arrays.ids.of(row), s, row)))
    };
    let mut heap: BinaryHeap<_> = (0..chosen.len()).filter_map(&mut next).collect();
    let mut waiting: Vec<(u64, &Segment, usize)> = Vec::new();
    while let Some(Reverse((id, s, row))) = heap.pop() {
        heap.extend(next(s));
        let segment = &**chosen[s].segment;
        let given = chosen[s].given.filter(|given| given.rows.contains(row as u64));
        match (coding, given) {
            (Coding::Copy(_), _) => output.push(id, segment, row, None)?,
            (Coding::Again(model, _), Some(given)) => {
                output.encode(model, &mut waiting)?;
                output.push(id, segment, row, Some(given))?;
            }
            (Coding::Again(model, _), None) => {
                waiting.push((id, segment, row));
                if waiting.len() == BATCH_ROWS {
                    output.encode(model, &mut waiting)?;
                }
            }
        }
    }
    if let Coding::Again(model, _) = coding {
        output.encode(model, &mut waiting)?;
    }
    output.writers.into_iter().map(SegmentWriter::finish).collect()
}

/// The new segments.
struct Output<'a> {
    folder: &'a Path,
    next_number: &'a mut u64,
    journal: &'a mut Journal,
    layout: &'a Layout,
    writers: Vec<SegmentWriter>,
}

impl Output<'_> {
    /// The segment that takes the next row.
    fn writer(&mut self) -> Result<&mut SegmentWriter> {
        if self.writers.last().is_none_or(|writer| writer.rows() >= MAX_SEGMENT_ROWS) {
            let number = number(self.folder, self.next_number)?;
            self.journal.add(segment::names(number, self.layout))?;
            self.writers.push(SegmentWriter::create(self.folder, number, self.layout)?);
        }
        let last = self.writers.len() - 1;
        Ok(&mut self.writers[last])
    }

    /// Writes a row with its code, or with a given one.
    fn push(
        &mut self,
        id: u64,
        segment: &Segment,
        row: usize,
        given: Option<&GivenCodes>,
    ) -> Result<()> {
        let cut = |width: usize| row * width..(row + 1) * width;
        let arrays = &segment.arrays;
        let (codes, factors) = match given {
            None => {
                let factors = arrays.codes.factors.as_ref();
                let factors = factors.map_or(&[][..], |f| &f.data[cut(f.bytes)]);
                (arrays.codes.row(row), factors)
            }
            Some(given) => {
                let (code, factors) =
                    (self.layout.empty.bytes_per_row(), self.layout.factors.unwrap_or(0));
                (&given.codes[cut(code)], &given.factors[cut(factors)])
            }
        };
        let name = name(segment, row)?;
        let vectors = stored(segment, self.layout, row);
        let part = NewPart {
            ids: std::slice::from_ref(&id),
            names: name.as_slice(),
            codes,
            factors,
            vectors,
        };
        self.writer()?.push(part)
    }

    /// Encodes the waiting rows from their stored vectors and writes them.
    fn encode(&mut self, model: &Model, waiting: &mut Vec<(u64, &Segment, usize)>) -> Result<()> {
        let Some(stored_as) = self.layout.vectors.filter(|_| !waiting.is_empty()) else {
            debug_assert!(waiting.is_empty(), "rows without vectors are not chosen");
            return Ok(());
        };
        let vectors: Vec<&[u8]> =
            waiting.iter().map(|(_, segment, row)| stored(segment, self.layout, *row)).collect();
        let values = stored_as.values(&vectors);
        let rows = Rows::new(&values, self.layout.dim)?;
        let codes = match self.layout.factors {
            Some(_) => model.encode_with_factors(rows)?,
            None => model.encode(rows)?,
        };
        for (i, ((id, segment, row), vector)) in waiting.iter().zip(&vectors).enumerate() {
            let name = name(segment, *row)?;
            let factors = codes.factors.as_ref();
            let factors = factors.map_or(&[][..], |f| &f.data[i * f.bytes..(i + 1) * f.bytes]);
            let part = NewPart {
                ids: std::slice::from_ref(id),
                names: name.as_slice(),
                codes: codes.row(i),
                factors,
                vectors: vector,
            };
            self.writer()?.push(part)?;
        }
        waiting.clear();
        Ok(())
    }
}

/// The name of a row, if rows have names.
fn name(segment: &Segment, row: usize) -> Result<Option<&str>> {
    // The caller has verified the names.
    segment.arrays.names.as_ref().map(|names| names.of(row, false)).transpose()
}

/// The bytes of the vector of a row; empty if the index stores none.
fn stored<'a>(segment: &'a Segment, layout: &Layout, row: usize) -> &'a [u8] {
    match (&segment.arrays.vectors, layout.vectors()) {
        (Some(bytes), Some(form)) => &bytes[row * form.width()..(row + 1) * form.width()],
        _ => &[],
    }
}

impl StoredVectors {
    /// The values of stored vectors.
    pub(super) fn values(self, vectors: &[&[u8]]) -> Vec<f32> {
        let bytes = vectors.iter();
        match self {
            StoredVectors::F32 => {
                bytes.flat_map(|v| v.as_chunks().0).map(|x| f32::from_le_bytes(*x)).collect()
            }
            StoredVectors::F16 => bytes
                .flat_map(|v| v.as_chunks().0)
                .map(|x| half::f16::from_le_bytes(*x).to_f32())
                .collect(),
        }
    }
}

impl Index {
    /// Verifies all data of these segments, even if they were verified before, because their files will be removed.
    pub(super) fn check_segments<'a>(
        &self,
        segments: impl IntoIterator<Item = &'a Arc<Segment>>,
    ) -> Result<()> {
        segments.into_iter().try_for_each(|segment| segment.check(&self.folder))
    }

    /// The error for rows whose vectors are needed and are not there.
    pub(super) fn no_vectors(&self, rows: u64) -> Error {
        let why = format!(
            "the vectors of {rows} rows are needed to encode them again, and the index stores none: give them from \
             where they came (--source), or keep the codes of these rows (--keep-codes)"
        );
        Error::File { path: Some(self.folder.clone()), why }
    }
}
