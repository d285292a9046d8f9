//! A column of vectors as rows of numbers: List, LargeList or FixedSizeList of f16, f32, f64, i8 or u8.

use datafusion::arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::datatypes::{
    DataType, Float16Type, Float32Type, Float64Type, Int8Type, UInt8Type,
};
use datafusion::common::{DataFusionError, Result, exec_datafusion_err, plan_datafusion_err};
use frosh::{Element, Rows};
use std::ops::Range;

/// The length of rows that the type tells, if it is a type of vectors.
pub(crate) fn check_type(function: &str, data_type: &DataType) -> Result<Option<usize>> {
    let (values, dim) = match data_type {
        DataType::FixedSizeList(field, dim) => (field.data_type(), Some(*dim as usize)),
        DataType::List(field) | DataType::LargeList(field) => (field.data_type(), None),
        other => return Err(wrong_type(function, other)),
    };
    match values {
        DataType::Float16 | DataType::Float32 | DataType::Float64 => Ok(dim),
        DataType::Int8 | DataType::UInt8 => Ok(dim),
        _ => Err(wrong_type(function, data_type)),
    }
}

fn wrong_type(function: &str, data_type: &DataType) -> DataFusionError {
    plan_datafusion_err!(
        "{function}: the vectors are of type {data_type}; expected List, LargeList or FixedSizeList of Float16, \
         Float32, Float64, Int8 or UInt8. arrow_cast(column, 'List(Float32)') converts other numbers"
    )
}

/// Why a row cannot be used.
#[derive(Debug)]
pub(crate) enum Bad {
    Null,
    NullValue(usize),
    Length { expected: usize, got: usize },
    Value(frosh::Error),
}

impl std::fmt::Display for Bad {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Null => f.write_str("the vector is null"),
            Self::NullValue(column) => write!(f, "value {column} is null"),
            Self::Length { expected, got } => {
                write!(f, "the vector has {got} values, expected {expected}")
            }
            Self::Value(frosh::Error::NotFinite { column, value, .. }) => {
                write!(f, "value {column} is {value}")
            }
            Self::Value(frosh::Error::TooLarge { column, value, limit, .. }) => {
                write!(f, "value {column} is {value:e}, above {limit:e}")
            }
            Self::Value(error) => write!(f, "{error}"),
        }
    }
}

/// What uses the rows.
pub(crate) trait Sink {
    /// Takes good rows, all of the same length. `first` is the number of the first row in its batch. Stops at the first row
    /// that has a bad value, and returns its number among these rows, with the reason.
    fn take<T: Element>(&mut self, first: usize, rows: Rows<'_, T>)
    -> Result<Option<(usize, Bad)>>;

    /// A row that cannot be used: an error, or it is left out.
    fn bad(&mut self, row: usize, why: Bad) -> Result<()>;
}

/// Passes the rows of a batch to `sink` in their order. `dim` is the length of rows; if it is not known yet, the first
/// vector determines it.
pub(crate) fn feed(array: &ArrayRef, dim: &mut Option<usize>, sink: &mut impl Sink) -> Result<()> {
    let (values, place) = places(array)?;
    let batch = Batch { rows: array.len(), nulls: array.nulls(), place: &*place };
    match values.data_type() {
        DataType::Float16 => batch.feed::<Float16Type>(values, dim, sink),
        DataType::Float32 => batch.feed::<Float32Type>(values, dim, sink),
        DataType::Float64 => batch.feed::<Float64Type>(values, dim, sink),
        DataType::Int8 => batch.feed::<Int8Type>(values, dim, sink),
        DataType::UInt8 => batch.feed::<UInt8Type>(values, dim, sink),
        _ => Err(wrong_type("frosh", array.data_type())),
    }
}

/// Where the values of a row are in an array.
pub(crate) type Places<'a> = Box<dyn Fn(usize) -> Range<usize> + 'a>;

/// The values of a column of lists, and where those of each row are.
pub(crate) fn places(array: &ArrayRef) -> Result<(&ArrayRef, Places<'_>)> {
    Ok(match array.data_type() {
        DataType::FixedSizeList(_, length) => {
            let (list, length) = (array.as_fixed_size_list(), *length as usize);
            let first = list.value_offset(0) as usize;
            let place = move |row| first + row * length..first + (row + 1) * length;
            (list.values(), Box::new(place))
        }
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            let at = list.value_offsets();
            (list.values(), Box::new(move |row| at[row] as usize..at[row + 1] as usize))
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            let at = list.value_offsets();
            (list.values(), Box::new(move |row| at[row] as usize..at[row + 1] as usize))
        }
        other => return Err(wrong_type("frosh", other)),
    })
}

/// The rows of one array.
struct Batch<'a> {
    rows: usize,
    nulls: Option<&'a NullBuffer>,
    /// Where the values of a row are.
    place: &'a dyn Fn(usize) -> Range<usize>,
}

impl Batch<'_> {
    fn feed<P>(
        &self,
        values: &ArrayRef,
        dim: &mut Option<usize>,
        sink: &mut impl Sink,
    ) -> Result<()>
    where
        P: ArrowPrimitiveType<Native: Element>,
    {
        let values: &PrimitiveArray<P> = values.as_primitive();
        let mut row = 0;
        while row < self.rows {
            if let Some(why) = self.reason(row, values.nulls(), dim) {
                sink.bad(row, why)?;
                row += 1;
                continue;
            }
            let length = dim.ok_or_else(|| exec_datafusion_err!("rows without a length"))?;
            // As many good rows as follow each other in memory.
            let start = (self.place)(row).start;
            let mut end = row + 1;
            while end < self.rows
                && (self.place)(end).start == start + (end - row) * length
                && self.reason(end, values.nulls(), dim).is_none()
            {
                end += 1;
            }
            let slice = &values.values()[start..start + (end - row) * length];
            let rows = Rows::new(slice, length).map_err(|e| exec_datafusion_err!("{e}"))?;
            match sink.take(row, rows)? {
                None => row = end,
                Some((at, why)) => {
                    sink.bad(row + at, why)?;
                    row += at + 1;
                }
            }
        }
        Ok(())
    }

    /// Why a row cannot be used, as far as nulls and lengths tell. Sets the length of rows if it is not known yet.
    fn reason(
        &self,
        row: usize,
        value_nulls: Option<&NullBuffer>,
        dim: &mut Option<usize>,
    ) -> Option<Bad> {
        if self.nulls.is_some_and(|nulls| nulls.is_null(row)) {
            return Some(Bad::Null);
        }
        let place = (self.place)(row);
        if let Some(nulls) = value_nulls.filter(|nulls| nulls.null_count() > 0)
            && let Some(at) = place.clone().find(|at| nulls.is_null(*at))
        {
            return Some(Bad::NullValue(at - place.start));
        }
        let got = place.len();
        let expected = if got == 0 { dim.unwrap_or(1) } else { *dim.get_or_insert(got) };
        (got != expected).then_some(Bad::Length { expected, got })
    }
}
