//! Reads rows from a list column: the [`Source`] of both formats.
//!
//! A format implements [`ListReader`], which reads some lists at a time and seeks. Here the rows are checked
//! (nulls, lengths) and copied, a whole run of good rows at once.

use super::{Column, damaged};
use crate::batch::{Kind, Values, add_range};
use crate::error::{Fault, Hint};
use crate::source::{Cutting, MAX_DIM, Places, Shape, Source, skip_by_reading};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, UInt8Type, UInt16Type,
    UInt32Type,
};
use arrow_array::{Array, ArrayRef};
use arrow_buffer::{NullBuffer, ScalarBuffer};
use arrow_schema::DataType;
use std::ops::Range;

/// Some rows of a column.
pub(crate) struct Lists {
    /// Where the values of each row are in `items`.
    pub(crate) offsets: Offsets,
    /// Which rows are null.
    pub(crate) nulls: Option<NullBuffer>,
    /// The values of all rows.
    pub(crate) items: ArrayRef,
}

/// Where rows begin and end among the values.
pub(crate) enum Offsets {
    /// `rows` rows of `size` values each.
    Fixed { size: usize, rows: usize },
    /// Row `i` is from offset `i` to offset `i + 1`.
    Short(ScalarBuffer<i32>),
    /// The same with 64-bit offsets.
    Long(ScalarBuffer<i64>),
}

impl Offsets {
    pub(crate) fn rows(&self) -> usize {
        match self {
            Offsets::Fixed { rows, .. } => *rows,
            Offsets::Short(ends) => ends.len().saturating_sub(1),
            Offsets::Long(ends) => ends.len().saturating_sub(1),
        }
    }
}

impl Lists {
    /// The rows of a list array.
    pub(crate) fn new(array: &dyn Array) -> Option<Self> {
        let (offsets, items) = if let Some(lists) = array.as_list_opt::<i32>() {
            (Offsets::Short(lists.offsets().inner().clone()), lists.values())
        } else if let Some(lists) = array.as_list_opt::<i64>() {
            (Offsets::Long(lists.offsets().inner().clone()), lists.values())
        } else {
            let lists = array.as_fixed_size_list_opt()?;
            let size = usize::try_from(lists.value_length()).ok()?;
            (Offsets::Fixed { size, rows: lists.len() }, lists.values())
        };
        Some(Self { offsets, nulls: array.nulls().cloned(), items: items.clone() })
    }

    pub(crate) fn rows(&self) -> usize {
        self.offsets.rows()
    }

    /// The range of a row's values. Arrays have no negative offsets; one would give a range beyond all
    /// items, which [`Lists::copy`] refuses.
    fn range(&self, row: usize) -> Range<usize> {
        match &self.offsets {
            Offsets::Fixed { size, .. } => {
                row.saturating_mul(*size)..(row + 1).saturating_mul(*size)
            }
            Offsets::Short(ends) => ends[row] as usize..ends[row + 1] as usize,
            Offsets::Long(ends) => ends[row] as usize..ends[row + 1] as usize,
        }
    }

    fn is_null(&self, row: usize) -> bool {
        self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
    }

    /// Whether it is clear without looking at each row that all rows have `dim` values and no nulls.
    fn all_good(&self, dim: usize) -> bool {
        matches!(self.offsets, Offsets::Fixed { size, .. } if size == dim)
            && self.nulls.is_none()
            && self.items.nulls().is_none()
    }

    /// Appends a range of the items to `values`; `None` if it is out of bounds.
    fn copy(&self, range: Range<usize>, values: &mut Values) -> Option<()> {
        /// The range as a slice of type `$t`.
        macro_rules! slice {
            ($t:ty) => {
                self.items.as_primitive_opt::<$t>()?.values().get(range)?
            };
        }
        match (values, self.items.data_type()) {
            (Values::F16(v), DataType::Float16) => v.extend_from_slice(slice!(Float16Type)),
            (Values::F32(v), DataType::Float32) => v.extend_from_slice(slice!(Float32Type)),
            (Values::F64(v), DataType::Float64) => v.extend_from_slice(slice!(Float64Type)),
            (Values::U8(v), DataType::UInt8) => v.extend_from_slice(slice!(UInt8Type)),
            (Values::I8(v), DataType::Int8) => v.extend_from_slice(slice!(Int8Type)),
            (Values::F32(v), DataType::Int16) => {
                v.extend(slice!(Int16Type).iter().map(|&x| f32::from(x)));
            }
            (Values::F32(v), DataType::UInt16) => {
                v.extend(slice!(UInt16Type).iter().map(|&x| f32::from(x)));
            }
            (Values::F64(v), DataType::Int32) => {
                v.extend(slice!(Int32Type).iter().map(|&x| f64::from(x)));
            }
            (Values::F64(v), DataType::UInt32) => {
                v.extend(slice!(UInt32Type).iter().map(|&x| f64::from(x)));
            }
            _ => return None,
        }
        Some(())
    }
}

/// Reads the lists of a column in order.
pub(crate) trait ListReader: Send {
    /// The next lists, at least one; `None` at the end.
    fn next(&mut self) -> Result<Option<Lists>, Fault>;

    /// Moves to a row, which is not before the current one and not after the end.
    fn seek(&mut self, row: u64) -> Result<(), Fault>;

    /// Where the column can be cut.
    fn places(&self) -> Places;

    /// As [`Source::snap`].
    fn snap(&mut self, row: u64) -> u64 {
        row
    }

    /// Tells the number of values that every row must have, where no row is left out.
    fn set_dim(&mut self, dim: usize) {
        let _ = dim;
    }
}

/// Reads the rows of a column of vectors.
pub(crate) struct ListSource<R> {
    reader: R,
    kind: Kind,
    dim: usize,
    /// Number of rows in the file, including bad ones.
    rows: u64,
    skip_bad: bool,
    /// Numbers of the rows left out since they were last asked for.
    left_out: Vec<Range<u64>>,
    /// The lists that were read, and which of them is next.
    lists: Lists,
    at: usize,
    /// Rows at the start of the file that are null and were passed when it was opened.
    null_head: u64,
    /// Number of the next row in the file, and of the row to stop before.
    row: u64,
    end: u64,
}

impl<R: ListReader> ListSource<R> {
    /// Reads the column of `rows` rows that `reader` reads.
    pub(crate) fn new(
        mut reader: R,
        column: &Column,
        rows: u64,
        skip_bad: bool,
    ) -> Result<Self, Fault> {
        let fixed = column.fixed_size()?;
        let (mut row, mut left_out) = (0, 0);
        // Without a fixed size, the first row that is not null determines the dimension.
        loop {
            let Some(lists) = reader.next()? else {
                return Err(if left_out > 0 {
                    format!("holds no vectors: all {left_out} rows are null").into()
                } else if rows > 0 {
                    damaged(format_args!("it should hold {rows} rows, but none is there"))
                } else {
                    Fault::file("holds no rows")
                });
            };
            let first = (0..lists.rows()).find(|&row| !lists.is_null(row));
            let dim = fixed.or_else(|| first.map(|first| lists.range(first).len()));
            let Some(dim) = dim else {
                if !skip_bad {
                    return Err(null(row));
                }
                row += lists.rows() as u64;
                left_out += lists.rows() as u64;
                continue;
            };
            if !(1..=MAX_DIM).contains(&dim) {
                let row = row + first.unwrap_or_default() as u64;
                let why = format!("has {dim} values, expected 1 to {MAX_DIM}");
                return Err(Fault::row(row, why));
            }
            let kind = column.kind;
            if !skip_bad {
                reader.set_dim(dim);
            }
            return Ok(Self {
                reader,
                kind,
                dim,
                rows,
                skip_bad,
                left_out: Vec::from_iter((left_out > 0).then_some(0..left_out)),
                lists,
                at: 0,
                null_head: left_out,
                row,
                end: rows,
            });
        }
    }

    /// Reads the next lists; false at the end.
    fn advance(&mut self) -> Result<bool, Fault> {
        match self.reader.next()? {
            Some(lists) => {
                self.lists = lists;
                self.at = 0;
                Ok(true)
            }
            None if self.row == self.rows => Ok(false),
            None => Err(damaged(format_args!(
                "it should hold {} rows, but ends after {}",
                self.rows, self.row
            ))),
        }
    }

    /// Moves on by so many rows, bad ones too.
    fn pass(&mut self, rows: u64) -> Result<(), Fault> {
        let here = (self.lists.rows() - self.at) as u64;
        if rows <= here {
            self.at += rows as usize;
            self.row += rows;
        } else {
            self.row = self.row.saturating_add(rows).min(self.rows);
            self.at = self.lists.rows();
            self.reader.seek(self.row)?;
        }
        Ok(())
    }

    /// Checks list `at`. False if it is to be left out because it holds nulls.
    fn check(&self, at: usize) -> Result<bool, Fault> {
        let row = self.row + (at - self.at) as u64;
        if self.lists.is_null(at) {
            return if self.skip_bad { Ok(false) } else { Err(null(row)) };
        }
        let range = self.lists.range(at);
        if range.len() != self.dim {
            let why = format!("has {} values, expected {}", range.len(), self.dim);
            return Err(Fault::row(row, why));
        }
        let Some(nulls) = self.lists.items.nulls() else {
            return Ok(true);
        };
        if range.end > nulls.len() {
            return Err(damaged("a list reaches beyond its values"));
        }
        match range.clone().find(|&i| nulls.is_null(i)) {
            None => Ok(true),
            Some(_) if self.skip_bad => Ok(false),
            Some(i) => {
                let column = i - range.start;
                let why = format!("value {column} is null, expected a number");
                Err(Fault::row(row, why).hint(Hint::SkipBadRows))
            }
        }
    }
}

fn null(row: u64) -> Fault {
    Fault::row(row, "is null, expected a vector").hint(Hint::SkipBadRows)
}

impl<R: ListReader> Source for ListSource<R> {
    fn shape(&self) -> Shape {
        let rows = (!self.skip_bad).then_some(self.rows);
        Shape { dim: self.dim, kind: self.kind, rows }
    }

    fn read(&mut self, limit: usize, values: &mut Values) -> Result<usize, Fault> {
        values.clear(self.kind);
        let mut taken = 0;
        while taken < limit {
            if self.row == self.end || self.at == self.lists.rows() && !self.advance()? {
                break;
            }
            // The values of consecutive rows are contiguous, so that a run of good rows is copied at once.
            let wanted = usize::try_from(self.end - self.row).unwrap_or(usize::MAX);
            let wanted = wanted.min(limit - taken);
            let stop = self.lists.rows().min(self.at.saturating_add(wanted));
            let mut end = self.at;
            if self.lists.all_good(self.dim) {
                end = stop;
            }
            while end < stop && self.check(end)? {
                end += 1;
            }
            let run = end - self.at;
            if run > 0 {
                let range = self.lists.range(self.at).start..self.lists.range(end - 1).end;
                let copied = self.lists.copy(range, values);
                copied.ok_or_else(|| damaged("a list reaches beyond its values"))?;
                taken += run;
            }
            // If the run ended early, the next row is to be left out.
            let bad = usize::from(end < stop);
            if bad > 0 {
                let bad = self.row + run as u64;
                add_range(&mut self.left_out, bad..bad + 1);
            }
            self.at = end + bad;
            self.row += (run + bad) as u64;
        }
        Ok(taken)
    }

    fn skip(&mut self, rows: u64) -> Result<(), Fault> {
        if self.skip_bad {
            // Only good rows count, and which rows are good is known only after reading them.
            return skip_by_reading(self, rows);
        }
        self.pass(rows)
    }

    fn cutting(&self) -> Option<Cutting> {
        Some(Cutting { rows: self.rows, places: self.reader.places() })
    }

    fn snap(&mut self, row: u64) -> u64 {
        self.reader.snap(row)
    }

    fn select(&mut self, rows: Range<u64>) -> Result<(), Fault> {
        self.end = rows.end;
        let null = rows.start..rows.end.min(self.null_head);
        self.left_out = Vec::from_iter((!null.is_empty()).then_some(null));
        if rows.start > self.row {
            self.pass(rows.start - self.row)?;
        }
        // All rows of the range may be among those that were passed when the file was opened.
        self.end = self.end.max(self.row);
        Ok(())
    }

    fn take_left_out(&mut self) -> Vec<Range<u64>> {
        std::mem::take(&mut self.left_out)
    }
}
