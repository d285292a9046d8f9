//! Reads rows from several columns of numbers, each of which is one dimension: the [`Source`] of both formats.
//!
//! Cost: values are transposed, some thousand rows at a time. Parquet keeps a page of every column in memory.

use super::{damaged, type_name};
use crate::batch::{Kind, Values, add_range};
use crate::chosen::Columns;
use crate::error::{Fault, Hint};
use crate::source::{Cutting, MAX_DIM, Places, Shape, Source, skip_by_reading};
use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type,
    UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, Schema};
use half::f16;
use std::ops::Range;

/// Bytes of values that are read in one step.
const STEP: usize = 1 << 22;
/// Most rows read in one step.
const STEP_ROWS: usize = 1 << 14;

/// The columns of a table that are the dimensions.
pub(crate) struct Table {
    /// Their numbers among the columns, ascending.
    pub(crate) indices: Vec<usize>,
    /// Their names, for messages.
    names: Vec<String>,
    /// The element type of batches.
    pub(crate) kind: Kind,
}

impl Table {
    /// The chosen columns, which must hold numbers.
    pub(crate) fn choose(schema: &Schema, columns: &Columns) -> Result<Self, Fault> {
        let fields = schema.fields();
        let indices = columns.choose(fields.len(), |i| fields[i].name())?;
        if indices.len() > MAX_DIM {
            return Err(
                format!("{} columns are chosen, expected 1 to {MAX_DIM}", indices.len()).into()
            );
        }
        let mut kind = None;
        for field in indices.iter().map(|i| &fields[*i]) {
            let Some(own) = own_kind(field.data_type()) else {
                let (name, kind) = (field.name(), type_name(field.data_type()));
                let why = format!("column {name:?} is {kind}, expected numbers");
                return Err(Fault::file(why).hint(Hint::ChooseColumns));
            };
            kind = Some(kind.map_or(own, |kind| common(kind, own)));
        }
        let kind = kind.ok_or("no column is chosen")?;
        let names = indices.iter().map(|i| fields[*i].name().clone()).collect();
        Ok(Self { indices, names, kind })
    }

    /// Rows to read in one step.
    pub(crate) fn step(&self) -> usize {
        super::rows_in(STEP, self.indices.len() * 8).min(STEP_ROWS)
    }
}

/// The element type that holds all values of a column.
fn own_kind(data_type: &DataType) -> Option<Kind> {
    Some(match data_type {
        DataType::Float16 => Kind::F16,
        DataType::Float32 | DataType::Int16 | DataType::UInt16 => Kind::F32,
        // Integers of 64 bits are checked when they are read.
        DataType::Float64 | DataType::Int32 | DataType::UInt32 => Kind::F64,
        DataType::Int64 | DataType::UInt64 => Kind::F64,
        DataType::UInt8 => Kind::U8,
        DataType::Int8 => Kind::I8,
        _ => return None,
    })
}

/// The element type that holds all values of two.
fn common(a: Kind, b: Kind) -> Kind {
    match (a, b) {
        _ if a == b => a,
        (Kind::F64, _) | (_, Kind::F64) => Kind::F64,
        _ => Kind::F32,
    }
}

/// Reads the columns of a table in order.
pub(crate) trait TableReader: Send {
    /// The next rows, at least one: an array for each column. `None` at the end.
    fn next(&mut self) -> Result<Option<Vec<ArrayRef>>, Fault>;

    /// Moves to a row, which is not before the current one and not after the end.
    fn seek(&mut self, row: u64) -> Result<(), Fault>;

    /// Where the columns can be cut.
    fn places(&self) -> Places;
}

/// Reads the rows of a table.
pub(crate) struct TableSource<R> {
    reader: R,
    table: Table,
    /// Number of rows in the file, including bad ones.
    rows: u64,
    skip_bad: bool,
    left_out: Vec<Range<u64>>,
    /// The columns that were read, and which of their rows is next.
    arrays: Vec<ArrayRef>,
    at: usize,
    /// Number of the next row in the file, and of the row to stop before.
    row: u64,
    end: u64,
}

impl<R: TableReader> TableSource<R> {
    pub(crate) fn new(reader: R, table: Table, rows: u64, skip_bad: bool) -> Self {
        Self {
            reader,
            table,
            rows,
            skip_bad,
            left_out: Vec::new(),
            arrays: Vec::new(),
            at: 0,
            row: 0,
            end: rows,
        }
    }

    fn here(&self) -> usize {
        self.arrays.first().map_or(0, |array| array.len())
    }

    /// Reads the next rows; false at the end.
    fn advance(&mut self) -> Result<bool, Fault> {
        self.arrays.clear();
        self.at = 0;
        let Some(arrays) = self.reader.next()? else {
            if self.row == self.rows {
                return Ok(false);
            }
            let (rows, row) = (self.rows, self.row);
            return Err(damaged(format_args!("it should hold {rows} rows, but ends after {row}")));
        };
        let length = arrays.first().map_or(0, |array| array.len());
        let dim = self.table.indices.len();
        if arrays.len() != dim || length == 0 || arrays.iter().any(|array| array.len() != length) {
            return Err(damaged("its columns differ in length"));
        }
        self.arrays = arrays;
        Ok(true)
    }

    /// Moves on by so many rows, bad ones too.
    fn pass(&mut self, rows: u64) -> Result<(), Fault> {
        let here = (self.here() - self.at) as u64;
        if rows <= here {
            self.at += rows as usize;
            self.row += rows;
        } else {
            self.row = self.row.saturating_add(rows).min(self.rows);
            self.arrays.clear();
            self.at = 0;
            self.reader.seek(self.row)?;
        }
        Ok(())
    }

    /// Which of the next `count` rows hold nulls, ascending. Refuses them unless they are to be left out.
    fn bad_rows(&self, count: usize) -> Result<Vec<usize>, Fault> {
        let mut bad = Vec::new();
        for (array, name) in self.arrays.iter().zip(&self.table.names) {
            let Some(nulls) = array.nulls().filter(|nulls| nulls.null_count() > 0) else {
                continue;
            };
            let found = (0..count).filter(|i| nulls.is_null(self.at + i));
            for i in found {
                if !self.skip_bad {
                    let why = format!("column {name:?} is null, expected a number");
                    return Err(Fault::row(self.row + i as u64, why).hint(Hint::SkipBadRows));
                }
                bad.push(i);
            }
        }
        bad.sort_unstable();
        bad.dedup();
        Ok(bad)
    }
}

impl<R: TableReader> Source for TableSource<R> {
    fn shape(&self) -> Shape {
        let rows = (!self.skip_bad).then_some(self.rows);
        Shape { dim: self.table.indices.len(), kind: self.table.kind, rows }
    }

    fn read(&mut self, limit: usize, values: &mut Values) -> Result<usize, Fault> {
        let dim = self.table.indices.len();
        values.clear(self.table.kind);
        let mut taken = 0;
        while taken < limit {
            if self.row == self.end || self.at == self.here() && !self.advance()? {
                break;
            }
            let wanted = usize::try_from(self.end - self.row).unwrap_or(usize::MAX);
            let count = (self.here() - self.at).min(limit - taken).min(wanted);
            let bad = self.bad_rows(count)?;
            values.resize((taken + count) * dim);
            for (j, array) in self.arrays.iter().enumerate() {
                let place = Place { first: taken, dim, column: j };
                if let Some(i) = scatter(&array.slice(self.at, count), values, place)? {
                    let name = &self.table.names[j];
                    let why = format!("column {name:?} is an integer of more than 53 bits");
                    return Err(Fault::row(self.row + i as u64, why));
                }
            }
            for i in &bad {
                let number = self.row + *i as u64;
                add_range(&mut self.left_out, number..number + 1);
            }
            let kept = count - bad.len();
            if !bad.is_empty() {
                values.remove_rows(dim, bad.into_iter().map(|i| taken + i));
            }
            taken += kept;
            self.at += count;
            self.row += count as u64;
        }
        Ok(taken)
    }

    fn skip(&mut self, rows: u64) -> Result<(), Fault> {
        if self.skip_bad {
            return skip_by_reading(self, rows);
        }
        self.pass(rows)
    }

    fn cutting(&self) -> Option<Cutting> {
        Some(Cutting { rows: self.rows, places: self.reader.places() })
    }

    fn select(&mut self, rows: Range<u64>) -> Result<(), Fault> {
        self.end = rows.end;
        self.left_out.clear();
        self.pass(rows.start - self.row)
    }

    fn take_left_out(&mut self) -> Vec<Range<u64>> {
        std::mem::take(&mut self.left_out)
    }
}

/// Where the values of a column go.
#[derive(Clone, Copy)]
struct Place {
    /// The first row.
    first: usize,
    dim: usize,
    column: usize,
}

/// Copies a column to its place among the rows. Returns the first row with an integer that `f64` cannot hold.
fn scatter(array: &dyn Array, values: &mut Values, place: Place) -> Result<Option<usize>, Fault> {
    fn put<A: Copy, T>(from: &[A], to: &mut [T], place: Place, convert: impl Fn(A) -> T) {
        let Place { first, dim, column } = place;
        let to = to[first * dim..].iter_mut().skip(column).step_by(dim);
        to.zip(from).for_each(|(to, from)| *to = convert(*from));
    }
    let wrong = || damaged("a column is not of the type that the schema gives");
    /// The values of the array as type `$t`.
    macro_rules! slice {
        ($t:ty) => {
            array.as_primitive_opt::<$t>().ok_or_else(wrong)?.values()
        };
    }
    use DataType as D;
    let mut too_large = None;
    match (values, array.data_type()) {
        (Values::F16(v), D::Float16) => put(slice!(Float16Type), v, place, |x| x),
        (Values::U8(v), D::UInt8) => put(slice!(UInt8Type), v, place, |x| x),
        (Values::I8(v), D::Int8) => put(slice!(Int8Type), v, place, |x| x),
        (Values::F32(v), D::Float16) => put(slice!(Float16Type), v, place, f16::to_f32),
        (Values::F32(v), D::Float32) => put(slice!(Float32Type), v, place, |x| x),
        (Values::F32(v), D::Int8) => put(slice!(Int8Type), v, place, f32::from),
        (Values::F32(v), D::UInt8) => put(slice!(UInt8Type), v, place, f32::from),
        (Values::F32(v), D::Int16) => put(slice!(Int16Type), v, place, f32::from),
        (Values::F32(v), D::UInt16) => put(slice!(UInt16Type), v, place, f32::from),
        (Values::F64(v), D::Float16) => put(slice!(Float16Type), v, place, f16::to_f64),
        (Values::F64(v), D::Float32) => put(slice!(Float32Type), v, place, f64::from),
        (Values::F64(v), D::Float64) => put(slice!(Float64Type), v, place, |x| x),
        (Values::F64(v), D::Int8) => put(slice!(Int8Type), v, place, f64::from),
        (Values::F64(v), D::UInt8) => put(slice!(UInt8Type), v, place, f64::from),
        (Values::F64(v), D::Int16) => put(slice!(Int16Type), v, place, f64::from),
        (Values::F64(v), D::UInt16) => put(slice!(UInt16Type), v, place, f64::from),
        (Values::F64(v), D::Int32) => put(slice!(Int32Type), v, place, f64::from),
        (Values::F64(v), D::UInt32) => put(slice!(UInt32Type), v, place, f64::from),
        (Values::F64(v), D::Int64) => {
            let from = slice!(Int64Type);
            let fits = |i: usize| array.is_null(i) || from[i].unsigned_abs() <= 1 << 53;
            too_large = (0..from.len()).find(|i| !fits(*i));
            put(from, v, place, |x| x as f64);
        }
        (Values::F64(v), D::UInt64) => {
            let from = slice!(UInt64Type);
            too_large = (0..from.len()).find(|i| !array.is_null(*i) && from[*i] > 1 << 53);
            put(from, v, place, |x| x as f64);
        }
        _ => return Err(wrong()),
    }
    Ok(too_large)
}
