//! Rows out of lists: the [`Source`] behind both formats.
//!
//! A format only has to deliver [`Lists`], some rows at a time, and to seek. Here the rows are checked
//! (nulls, lengths) and copied, a whole run of good rows at once.

use super::{Column, damaged};
use crate::batch::{Kind, Values};
use crate::error::Fault;
use crate::source::{MAX_DIM, Shape, Source};
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
    /// Where in `items` each row is.
    pub(crate) spans: Spans,
    /// Which rows are null.
    pub(crate) nulls: Option<NullBuffer>,
    /// The values of all rows.
    pub(crate) items: ArrayRef,
}

/// Where each row begins and ends.
pub(crate) enum Spans {
    /// `rows` rows of `size` values, one after the other.
    Every { size: usize, rows: usize },
    /// Row `i` goes from the `i`-th value to the next.
    Short(ScalarBuffer<i32>),
    /// The same, wider.
    Long(ScalarBuffer<i64>),
}

impl Spans {
    pub(crate) fn rows(&self) -> usize {
        match self {
            Spans::Every { rows, .. } => *rows,
            Spans::Short(ends) => ends.len().saturating_sub(1),
            Spans::Long(ends) => ends.len().saturating_sub(1),
        }
    }
}

impl Lists {
    /// The rows of a list array.
    pub(crate) fn new(array: &dyn Array) -> Option<Self> {
        let (spans, items) = if let Some(lists) = array.as_list_opt::<i32>() {
            (Spans::Short(lists.offsets().inner().clone()), lists.values())
        } else if let Some(lists) = array.as_list_opt::<i64>() {
            (Spans::Long(lists.offsets().inner().clone()), lists.values())
        } else {
            let lists = array.as_fixed_size_list_opt()?;
            let size = usize::try_from(lists.value_length()).ok()?;
            (Spans::Every { size, rows: lists.len() }, lists.values())
        };
        Some(Self { spans, nulls: array.nulls().cloned(), items: items.clone() })
    }

    pub(crate) fn rows(&self) -> usize {
        self.spans.rows()
    }

    /// Where the values of a row are. Offsets are never negative in arrays; if they were, the range would
    /// be beyond all items, which is noticed when it is copied.
    fn span(&self, row: usize) -> Range<usize> {
        match &self.spans {
            Spans::Every { size, .. } => row.saturating_mul(*size)..(row + 1).saturating_mul(*size),
            Spans::Short(ends) => ends[row] as usize..ends[row + 1] as usize,
            Spans::Long(ends) => ends[row] as usize..ends[row + 1] as usize,
        }
    }

    fn is_null(&self, row: usize) -> bool {
        self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row))
    }

    /// Whether all rows are whole and `dim` long, as far as that can be told at a glance.
    fn is_plain(&self, dim: usize) -> bool {
        matches!(self.spans, Spans::Every { size, .. } if size == dim)
            && self.nulls.is_none()
            && self.items.nulls().is_none()
    }

    /// Adds a range of the items to `values`.
    fn copy(&self, range: Range<usize>, values: &mut Values) -> Option<()> {
        /// The items, as a slice of the type of `$t`.
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

/// Delivers the rows of a column in order.
pub(crate) trait Chunks: Send {
    /// The next rows, at least one; `None` at the end.
    fn next(&mut self) -> Result<Option<Lists>, Fault>;

    /// Goes to a row, which is not before the present one and not after the end.
    fn seek(&mut self, row: u64) -> Result<(), Fault>;
}

/// Reads a column of vectors.
pub(crate) struct Reader<C> {
    chunks: C,
    kind: Kind,
    dim: usize,
    /// Rows in the file, bad ones too.
    rows: u64,
    skip_bad: bool,
    left_out: u64,
    /// The rows at hand, and which of them comes next.
    lists: Lists,
    at: usize,
    /// Number, in the file, of the row that comes next.
    row: u64,
}

impl<C: Chunks> Reader<C> {
    /// Reads the column of `rows` rows that `chunks` delivers.
    pub(crate) fn new(
        mut chunks: C,
        column: &Column,
        rows: u64,
        skip_bad: bool,
    ) -> Result<Self, Fault> {
        let fixed = column.fixed()?;
        let (mut row, mut left_out) = (0, 0);
        // Without a fixed size, the first row that is not null sets the dimension.
        loop {
            let Some(lists) = chunks.next()? else {
                return Err(if left_out > 0 {
                    format!("holds no vectors: all {left_out} rows are null").into()
                } else if rows > 0 {
                    damaged(format_args!("it should hold {rows} rows, but none is there"))
                } else {
                    Fault::File("holds no rows".into())
                });
            };
            let first = (0..lists.rows()).find(|&row| !lists.is_null(row));
            let dim = fixed.or_else(|| first.map(|first| lists.span(first).len()));
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
                return Err(Fault::Row { row, why });
            }
            let kind = column.kind;
            return Ok(Self { chunks, kind, dim, rows, skip_bad, left_out, lists, at: 0, row });
        }
    }

    /// Gets the next rows; false at the end.
    fn advance(&mut self) -> Result<bool, Fault> {
        match self.chunks.next()? {
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

    /// Whether the row is to be taken: it may be left out if it holds nulls.
    fn check(&self, at: usize) -> Result<bool, Fault> {
        let row = self.row + (at - self.at) as u64;
        if self.lists.is_null(at) {
            return if self.skip_bad { Ok(false) } else { Err(null(row)) };
        }
        let span = self.lists.span(at);
        if span.len() != self.dim {
            let why = format!("has {} values, expected {}", span.len(), self.dim);
            return Err(Fault::Row { row, why });
        }
        let Some(nulls) = self.lists.items.nulls() else {
            return Ok(true);
        };
        if span.end > nulls.len() {
            return Err(damaged("a list reaches beyond its values"));
        }
        match span.clone().find(|&i| nulls.is_null(i)) {
            None => Ok(true),
            Some(_) if self.skip_bad => Ok(false),
            Some(i) => {
                let column = i - span.start;
                let why = format!("value {column} is null; pass --skip-bad to leave such rows out");
                Err(Fault::Row { row, why })
            }
        }
    }
}

fn null(row: u64) -> Fault {
    Fault::Row { row, why: "is null; pass --skip-bad to leave such rows out".into() }
}

impl<C: Chunks> Source for Reader<C> {
    fn shape(&self) -> Shape {
        let rows = (!self.skip_bad).then_some(self.rows);
        Shape { dim: self.dim, kind: self.kind, rows }
    }

    fn read(&mut self, limit: usize, values: &mut Values) -> Result<usize, Fault> {
        values.clear(self.kind);
        let mut taken = 0;
        while taken < limit {
            if self.at == self.lists.rows() && !self.advance()? {
                break;
            }
            // A run of good rows: their values lie one after the other, as one row begins where the one
            // before it ends.
            let stop = self.lists.rows().min(self.at.saturating_add(limit - taken));
            let mut end = self.at;
            if self.lists.is_plain(self.dim) {
                end = stop;
            }
            while end < stop && self.check(end)? {
                end += 1;
            }
            let run = end - self.at;
            if run > 0 {
                let span = self.lists.span(self.at).start..self.lists.span(end - 1).end;
                let copied = self.lists.copy(span, values);
                copied.ok_or_else(|| damaged("a list reaches beyond its values"))?;
                taken += run;
            }
            // What stopped a run early is a row to be left out.
            let bad = usize::from(end < stop);
            self.left_out += bad as u64;
            self.at = end + bad;
            self.row += (run + bad) as u64;
        }
        Ok(taken)
    }

    fn skip(&mut self, mut rows: u64) -> Result<(), Fault> {
        if self.skip_bad {
            // Only rows that are good count, and which those are shows only in reading.
            let mut scrap = Values::empty(self.kind);
            while rows > 0 {
                let got = self.read(rows.min(1024) as usize, &mut scrap)? as u64;
                if got == 0 {
                    break;
                }
                rows -= got;
            }
            return Ok(());
        }
        let here = (self.lists.rows() - self.at) as u64;
        if rows <= here {
            self.at += rows as usize;
            self.row += rows;
        } else {
            self.row = self.row.saturating_add(rows).min(self.rows);
            self.at = self.lists.rows();
            self.chunks.seek(self.row)?;
        }
        Ok(())
    }

    fn left_out(&self) -> u64 {
        self.left_out
    }
}
