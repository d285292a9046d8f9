//! Batches of rows: values of one element type, and the file and row numbers they came from.
//!
//! A batch's element type is known only when the file is open, whereas [`frosh::Rows`] has it as a type
//! parameter. [`Batch::feed`] goes from one to the other.

use crate::error::{Error, Fault, Hint, Result};
use crate::ids::Ids;
use frosh::{Element, ExactSearch, NewRows, Rows, Sketcher};
use half::f16;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// The element type of a batch. Integers of other sizes in a file are widened without loss: 16 bits to
/// `f32`, 32 bits to `f64`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Half precision.
    F16,
    /// Single precision.
    F32,
    /// Double precision.
    F64,
    /// Bytes, 0 to 255.
    U8,
    /// Signed bytes.
    I8,
}

impl Kind {
    /// All element types.
    pub const ALL: [Kind; 5] = [Kind::F16, Kind::F32, Kind::F64, Kind::U8, Kind::I8];

    /// Its name, such as `f32`.
    pub fn name(self) -> &'static str {
        match self {
            Kind::F16 => "f16",
            Kind::F32 => "f32",
            Kind::F64 => "f64",
            Kind::U8 => "u8",
            Kind::I8 => "i8",
        }
    }

    /// Size of one value in bytes.
    pub fn bytes(self) -> usize {
        match self {
            Kind::U8 | Kind::I8 => 1,
            Kind::F16 => 2,
            Kind::F32 => 4,
            Kind::F64 => 8,
        }
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// Values of one of the element types.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Half precision.
    F16(Vec<f16>),
    /// Single precision.
    F32(Vec<f32>),
    /// Double precision.
    F64(Vec<f64>),
    /// Bytes.
    U8(Vec<u8>),
    /// Signed bytes.
    I8(Vec<i8>),
}

/// Runs the same code on the vector inside [`Values`], whatever its element type.
macro_rules! for_values {
    ($values:expr, $v:ident => $body:expr) => {
        match $values {
            $crate::Values::F16($v) => $body,
            $crate::Values::F32($v) => $body,
            $crate::Values::F64($v) => $body,
            $crate::Values::U8($v) => $body,
            $crate::Values::I8($v) => $body,
        }
    };
}
pub(crate) use for_values;

impl Values {
    /// An empty list of this element type.
    pub fn empty(kind: Kind) -> Self {
        match kind {
            Kind::F16 => Values::F16(Vec::new()),
            Kind::F32 => Values::F32(Vec::new()),
            Kind::F64 => Values::F64(Vec::new()),
            Kind::U8 => Values::U8(Vec::new()),
            Kind::I8 => Values::I8(Vec::new()),
        }
    }

    /// The element type.
    pub fn kind(&self) -> Kind {
        match self {
            Values::F16(_) => Kind::F16,
            Values::F32(_) => Kind::F32,
            Values::F64(_) => Kind::F64,
            Values::U8(_) => Kind::U8,
            Values::I8(_) => Kind::I8,
        }
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        for_values!(self, v => v.len())
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A copy in double precision, which holds the values of every type exactly.
    pub fn to_f64(&self) -> Vec<f64> {
        fn each<T: Copy + Into<f64>>(values: &[T]) -> Vec<f64> {
            values.iter().map(|x| (*x).into()).collect()
        }
        for_values!(self, v => each(v))
    }

    /// Makes it of this element type. Values that have the type already are kept, to be overwritten.
    pub(crate) fn set_kind(&mut self, kind: Kind) {
        if self.kind() != kind {
            *self = Values::empty(kind);
        }
    }

    /// Makes it empty and of this element type. Its memory is kept if it has the type already.
    pub(crate) fn clear(&mut self, kind: Kind) {
        if self.kind() == kind {
            for_values!(self, v => v.clear());
        } else {
            *self = Values::empty(kind);
        }
    }

    /// Changes its length; new values are zero.
    pub(crate) fn resize(&mut self, len: usize) {
        for_values!(self, v => v.resize(len, Default::default()));
    }

    /// The values as bytes, in the byte order of this machine.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        for_values!(self, v => bytemuck::cast_slice_mut(v))
    }

    /// The values as bytes, in the byte order of this machine.
    pub(crate) fn bytes(&self) -> &[u8] {
        for_values!(self, v => bytemuck::cast_slice(v))
    }

    /// Removes rows of `dim` values. Their numbers ascend.
    pub(crate) fn remove_rows(&mut self, dim: usize, rows: impl IntoIterator<Item = usize>) {
        fn compact<T: Copy>(
            values: &mut Vec<T>,
            dim: usize,
            removed: impl IntoIterator<Item = usize>,
        ) {
            let (mut kept, mut next) = (0, 0);
            let all = values.len() / dim;
            for row in removed.into_iter().chain([all]) {
                values.copy_within(next * dim..row * dim, kept * dim);
                kept += row - next;
                next = (row + 1).min(all);
            }
            values.truncate(kept * dim);
        }
        for_values!(self, v => compact(v, dim, rows));
    }
}

/// Something that takes rows of any element type, such as a [`Sketcher`].
///
/// It is a trait because a closure cannot be generic over the element type.
///
/// ```
/// use frosh::{Codes, Element, Hasher, Rows};
/// use frosh_io::{Batch, RowConsumer};
///
/// struct Encode<'a>(&'a Hasher);
///
/// impl RowConsumer for Encode<'_> {
///     type Output = Codes;
///
///     fn consume<T: Element>(self, rows: Rows<'_, T>) -> frosh::Result<Codes> {
///         self.0.encode(rows)
///     }
/// }
///
/// fn encode(hasher: &Hasher, batch: &Batch) -> frosh_io::Result<Codes> {
///     batch.feed(Encode(hasher))
/// }
/// ```
pub trait RowConsumer {
    /// What it makes of the rows.
    type Output;

    /// Takes the rows.
    fn consume<T: Element>(self, rows: Rows<'_, T>) -> frosh::Result<Self::Output>;
}

impl RowConsumer for &mut Sketcher {
    type Output = ();

    fn consume<T: Element>(self, rows: Rows<'_, T>) -> frosh::Result<()> {
        self.push(rows)
    }
}

impl RowConsumer for &mut ExactSearch {
    type Output = ();

    fn consume<T: Element>(self, rows: Rows<'_, T>) -> frosh::Result<()> {
        self.push(rows)
    }
}

impl RowConsumer for &mut NewRows<'_> {
    type Output = ();

    fn consume<T: Element>(self, rows: Rows<'_, T>) -> frosh::Result<()> {
        self.push(rows)
    }
}

/// Adds numbers that come after those that are there.
pub(crate) fn add_range(all: &mut Vec<Range<u64>>, more: Range<u64>) {
    match all.last_mut() {
        Some(last) if last.end == more.start => last.end = more.end,
        _ => all.push(more),
    }
}

/// Checks that every value can be used: see [`Batch::check`].
struct Check;

impl RowConsumer for Check {
    type Output = ();

    fn consume<T: Element>(self, rows: Rows<'_, T>) -> frosh::Result<()> {
        rows.check()
    }
}

/// Rows that were read together. All rows of a batch come from one file.
#[derive(Clone, Debug)]
pub struct Batch {
    pub(crate) values: Values,
    pub(crate) dim: usize,
    /// Number of the first row in its file.
    pub(crate) first: u64,
    /// Number of that file's first row in the stream.
    pub(crate) file_start: u64,
    /// Numbers in the file, ascending, of rows at or after `first` that were read with these and left out.
    pub(crate) left_out: Vec<Range<u64>>,
    /// The ids of the rows, if an id column was chosen.
    pub(crate) ids: Option<Ids>,
    /// The file, for error messages.
    pub(crate) path: Arc<Path>,
}

impl Batch {
    /// An empty batch.
    pub(crate) fn new(kind: Kind, dim: usize, path: Arc<Path>) -> Self {
        let values = Values::empty(kind);
        Self { values, dim, first: 0, file_start: 0, left_out: Vec::new(), ids: None, path }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.values.len() / self.dim
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Values per row.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// The values, row after row.
    pub fn values(&self) -> &Values {
        &self.values
    }

    /// The ids of the rows, one for each, if [`Options::id_column`](crate::Options::id_column) is set.
    pub fn ids(&self) -> Option<&Ids> {
        self.ids.as_ref()
    }

    /// Where a row of this batch is: its file and its number in that file.
    pub fn place(&self, row: usize) -> (&Path, u64) {
        (&self.path, self.row_in_file(row))
    }

    /// Its rows in runs of consecutive numbers: the rows of each run, counted in this batch, and the number of the
    /// run's first row in the stream. Numbers count all rows of all files, those left out too (see
    /// [`Options::skip_bad`](crate::Options::skip_bad)).
    pub fn runs(&self) -> Vec<(Range<usize>, u64)> {
        let mut runs = Vec::new();
        let (mut from, mut number) = (0, self.first);
        let end = self.first + self.len() as u64 + self.left_out_rows();
        for left_out in self.left_out.iter().cloned().chain(std::iter::once(end..end)) {
            let rows = (left_out.start - number) as usize;
            if rows > 0 {
                runs.push((from..from + rows, self.file_start + number));
            }
            from += rows;
            number = left_out.end;
        }
        runs
    }

    /// Number of rows that were left out.
    pub(crate) fn left_out_rows(&self) -> u64 {
        self.left_out.iter().map(|rows| rows.end - rows.start).sum()
    }

    /// Number in the file of a row of this batch.
    fn row_in_file(&self, row: usize) -> u64 {
        let runs = self.runs();
        let run = runs.iter().find(|(rows, _)| rows.contains(&row));
        run.map_or(self.first + row as u64, |(rows, number)| {
            number - self.file_start + (row - rows.start) as u64
        })
    }

    /// Gives all rows to `consumer`. If it refuses a row, the error names the file and the row's number there.
    pub fn feed<C: RowConsumer>(&self, consumer: C) -> Result<C::Output> {
        self.feed_range(0..self.len(), consumer)
    }

    /// Gives some of the rows to `consumer`, as [`Batch::feed`] does.
    ///
    /// # Panics
    ///
    /// If the range ends before it starts, or after the last row.
    pub fn feed_range<C: RowConsumer>(
        &self,
        range: Range<usize>,
        consumer: C,
    ) -> Result<C::Output> {
        let first = range.start;
        for_values!(&self.values, v => consumer.consume(Rows::new(v, self.dim)?.slice(range)))
            .map_err(|error| self.locate(error, first))
    }

    /// Refuses the first row with a value that frosh cannot use: NaN, infinity, or a magnitude that is too
    /// large. [`Options::skip_bad`](crate::Options::skip_bad) leaves such rows out.
    pub fn check(&self) -> Result<()> {
        self.feed(Check)
    }

    /// A copy without some of the rows. Their numbers ascend.
    pub fn without(&self, rows: impl IntoIterator<Item = usize>) -> Batch {
        let rows: Vec<usize> = rows.into_iter().collect();
        let mut batch = self.clone();
        let runs = self.runs();
        let mut runs = runs.iter().peekable();
        let removed = rows.iter().filter_map(|row| {
            while runs.next_if(|(run, _)| run.end <= *row).is_some() {}
            let (run, number) = runs.peek()?;
            let row = number - self.file_start + (row - run.start) as u64;
            Some(row..row + 1)
        });
        let mut all: Vec<Range<u64>> = self.left_out.iter().cloned().chain(removed).collect();
        all.sort_unstable_by_key(|rows| rows.start);
        batch.left_out.clear();
        all.into_iter().for_each(|rows| add_range(&mut batch.left_out, rows));
        if let Some(ids) = &mut batch.ids {
            ids.remove_rows(&rows);
        }
        batch.values.remove_rows(self.dim, rows);
        batch
    }

    /// Adds file and row number to an error about rows of this batch, which count from row `first` of it.
    fn locate(&self, error: frosh::Error, first: usize) -> Error {
        let (row, why) = match error {
            frosh::Error::NotFinite { row, column, value } => {
                (row, format!("column {column} is {value}, expected a finite number"))
            }
            frosh::Error::TooLarge { row, column, value, limit } => (
                row,
                format!(
                    "column {column} is {value:e}, expected a magnitude of at most {limit:e}; scale \
                     the data down"
                ),
            ),
            other => return Error::Engine(other),
        };
        let row = first + row;
        let fault = Fault::row(self.row_in_file(row), why);
        let fault = if self.is_bad(row) { fault.hint(Hint::SkipBadRows) } else { fault };
        fault.at(&self.path)
    }

    /// Whether reading would leave this row out. A consumer may refuse others too, such as those too large for `f16`.
    fn is_bad(&self, row: usize) -> bool {
        for_values!(&self.values, v => {
            Rows::new(v, self.dim).is_ok_and(|rows| rows.slice(row..row + 1).check().is_err())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(values: Values, dim: usize) -> Batch {
        let path = Arc::from(Path::new("f"));
        Batch { values, dim, first: 100, file_start: 1000, left_out: Vec::new(), ids: None, path }
    }

    #[test]
    fn rows_keep_their_numbers_where_others_were_left_out() {
        let mut rows = batch(Values::U8(vec![0, 1, 2, 3]), 1);
        assert_eq!(rows.runs(), [(0..4, 1100)]);
        rows.left_out = vec![100..101, 103..105, 107..108];
        assert_eq!(rows.runs(), [(0..2, 1101), (2..4, 1105)]);
        let fewer = rows.without([1, 2]);
        assert_eq!(fewer.left_out, [100..101, 102..106, 107..108]);
        assert_eq!(fewer.runs(), [(0..1, 1101), (1..2, 1106)]);
        let mut rows = batch(Values::F32(vec![1.0, f32::NAN]), 1);
        rows.left_out = vec![100..101, 102..103];
        let error = rows.check().unwrap_err();
        assert!(error.to_string().starts_with("f, row 103:"), "{error}");
    }

    #[test]
    fn an_error_names_the_row_of_the_file() {
        let rows = batch(Values::F32(vec![1.0, 2.0, 3.0, f32::NAN, 5.0, 6.0]), 2);
        let error = rows.check().unwrap_err();
        assert_eq!(error.to_string(), "f, row 101: column 1 is NaN, expected a finite number");
        assert_eq!(error.hint(), Some(Hint::SkipBadRows));
        let error = rows.feed_range(1..3, Check).unwrap_err();
        assert!(error.to_string().starts_with("f, row 101: column 1"), "{error}");
        rows.feed_range(2..3, Check).unwrap();
        let error = batch(Values::F64(vec![1.0, 1e30]), 1).check().unwrap_err();
        assert!(error.to_string().starts_with("f, row 101: column 0 is 1e30"), "{error}");
        assert_eq!(error.hint(), Some(Hint::SkipBadRows));
        assert!(batch(Values::U8(vec![1, 2]), 2).without([0]).is_empty());
    }

    #[test]
    fn rows_are_removed_by_number() {
        for (removed, kept) in [
            (vec![], vec![0, 0, 1, 1, 2, 2, 3, 3]),
            (vec![0], vec![1, 1, 2, 2, 3, 3]),
            (vec![1, 2], vec![0, 0, 3, 3]),
            (vec![0, 3], vec![1, 1, 2, 2]),
            (vec![0, 1, 2, 3], vec![]),
        ] {
            let mut values = Values::I8(vec![0, 0, 1, 1, 2, 2, 3, 3]);
            values.remove_rows(2, removed);
            assert_eq!(values, Values::I8(kept));
        }
    }
}
