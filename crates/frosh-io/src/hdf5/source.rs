//! Reads the rows of a data set.

use super::Found;
use super::bytes::Input;
use super::describe;
use super::header;
use super::storage::Storage;
use crate::batch::Values;
use crate::error::{Fault, Hint};
use crate::layout::Layout;
use crate::source::{Cutting, MAX_DIM, Places, Shape, Source};
use std::ops::Range;

/// Bytes of stored values that are widened at a time.
const WIDENED: usize = 256 << 10;

/// The rows of one data set.
pub(crate) struct Hdf5Source {
    input: Input,
    storage: Storage,
    number: Layout,
    dim: usize,
    rows: u64,
    /// The next row, and the row to stop before.
    row: u64,
    end: u64,
    scratch: Vec<u8>,
}

impl Hdf5Source {
    pub(super) fn new(mut input: Input, found: Found) -> Result<Self, Fault> {
        let summary = found.summary();
        let fault = |why: String| Fault::file(format!("data set {summary}: {why}"));
        let &[rows, dim] = &found.description.shape[..] else {
            let why = "expected two dimensions, rows and columns".into();
            return Err(fault(why).hint(Hint::ChooseDataset));
        };
        let Some(number) = found.description.element.number else {
            let why = "expected f16, f32, f64, u8, i8, or integers of 16 or 32 bits".into();
            return Err(fault(why).hint(Hint::ChooseDataset));
        };
        if dim < 1 || dim > MAX_DIM as u64 {
            return Err(fault(format!("expected 1 to {MAX_DIM} columns")));
        }
        let messages = header::messages(&mut input, found.at)?;
        let storage = Storage::new(
            &mut input,
            describe::data_layout(&messages)?,
            describe::filters(&messages)?,
            [rows, dim],
            &found.description.limits,
            number.stored.bytes(),
        )?;
        let dim = dim as usize;
        Ok(Self { input, storage, number, dim, rows, row: 0, end: rows, scratch: Vec::new() })
    }
}

impl Source for Hdf5Source {
    fn shape(&self) -> Shape {
        Shape { dim: self.dim, kind: self.number.stored.kind(), rows: Some(self.rows) }
    }

    fn read(&mut self, limit: usize, values: &mut Values) -> Result<usize, Fault> {
        values.clear(self.number.stored.kind());
        let row_bytes = self.dim * self.number.stored.bytes();
        let direct = self.number.stored.is_kept();
        let mut got = 0;
        while got < limit && self.row < self.end {
            let mut want = (self.end - self.row).min((limit - got) as u64);
            if !direct {
                want = want.min((WIDENED / row_bytes).max(1) as u64);
            }
            let count = self.storage.prepare(&mut self.input, self.row, want)? as usize;
            let out = if direct {
                values.resize((got + count) * self.dim);
                &mut values.bytes_mut()[got * row_bytes..]
            } else {
                self.scratch.resize(count * row_bytes, 0);
                &mut self.scratch[..]
            };
            self.storage.fill(&mut self.input, self.row, row_bytes, out)?;
            self.number.to_native(out);
            if !direct {
                self.number.append(&self.scratch, values);
            }
            got += count;
            self.row += count as u64;
        }
        Ok(got)
    }

    fn cutting(&self) -> Option<Cutting> {
        Some(Cutting { rows: self.rows, places: Places::Multiples(self.storage.unit_rows()) })
    }

    fn select(&mut self, rows: Range<u64>) -> Result<(), Fault> {
        (self.row, self.end) = (rows.start, rows.end);
        Ok(())
    }

    fn skip(&mut self, rows: u64) -> Result<(), Fault> {
        self.row = self.row.saturating_add(rows).min(self.rows);
        Ok(())
    }
}
