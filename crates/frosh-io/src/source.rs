//! The two traits that every format implements: [`Source`] reads rows, [`Sink`] writes them.

use crate::batch::{Kind, Values};
use crate::error::Fault;
use crate::ids::IdSource;
use std::ops::Range;

/// The largest dimension taken; the same as the `frosh` library's.
pub(crate) const MAX_DIM: usize = 1 << 24;

/// What is known of a file before its rows are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Values per row, from 1 to [`MAX_DIM`].
    pub(crate) dim: usize,
    /// Element type of the batches.
    pub(crate) kind: Kind,
    /// Number of rows, if the header or the size of the file gives it.
    pub(crate) rows: Option<u64>,
}

/// Where a file can be cut into ranges of rows that are read on their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cutting {
    /// Number of rows in the file, with those that would be left out.
    pub(crate) rows: u64,
    pub(crate) places: Places,
}

/// The rows at which a file can be cut so that nothing is decoded twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Places {
    /// Multiples of a number of rows that are decoded together; 1 is every row.
    Multiples(u64),
    /// The ends of units that are compressed as a whole, such as row groups: the number of rows up to the end of each,
    /// ascending. A unit may be cut into at most `parts` parts: more would take too long to find.
    Ends { ends: Vec<u64>, parts: u64 },
}

/// Reads the rows of one file in order, some at a time.
pub(crate) trait Source: Send {
    /// What is known before reading.
    fn shape(&self) -> Shape;

    /// Replaces `values` by the next rows, at most `limit` of them (`limit` is at least 1), and returns
    /// how many; 0 means the end. `values` has the element type of the shape. Row numbers in faults count
    /// from 0 at the start of the file. Memory grows with the rows that are there, never with what a header
    /// claims.
    fn read(&mut self, limit: usize, values: &mut Values) -> Result<usize, Fault>;

    /// Skips rows; the end may come before.
    fn skip(&mut self, rows: u64) -> Result<(), Fault> {
        skip_by_reading(self, rows)
    }

    /// Where the file can be cut: `None` if its rows can only be read from front to back.
    fn cutting(&self) -> Option<Cutting> {
        None
    }

    /// The first row of the page, or of another part that is decompressed as a whole, with this row; the row itself if
    /// it is not known to begin there.
    fn snap(&mut self, row: u64) -> u64 {
        row
    }

    /// Moves to row `rows.start`, counted among all rows of the file, and makes row `rows.end` the end. The start is
    /// not before the row that would be read next, and the end not after the last row. Called only if
    /// [`Source::cutting`] says that rows can be found. Rows before the start are not in [`Source::take_left_out`].
    fn select(&mut self, rows: Range<u64>) -> Result<(), Fault> {
        let _ = rows;
        Err("can only be read from front to back".into())
    }

    /// Rows that were left out because they hold nulls, if that was asked for: the numbers, in the file and
    /// ascending, of those passed since the last call. As ranges, because a few bytes of a file can stand for any
    /// number of nulls.
    fn take_left_out(&mut self) -> Vec<Range<u64>> {
        Vec::new()
    }

    /// The reader of the ids, if an id column was chosen. It is asked for rows up to the last that was read.
    fn ids(&mut self) -> Option<&mut dyn IdSource> {
        None
    }
}

/// Skips rows by reading them.
pub(crate) fn skip_by_reading(
    source: &mut (impl Source + ?Sized),
    mut rows: u64,
) -> Result<(), Fault> {
    let mut ignored = Values::empty(source.shape().kind);
    while rows > 0 {
        let got = source.read(rows.min(1024) as usize, &mut ignored)? as u64;
        if got == 0 {
            break;
        }
        rows -= got;
    }
    Ok(())
}

/// Writes rows to one file, in order.
pub(crate) trait Sink {
    /// Takes whole rows, of the element type and dimension that the sink was made for.
    fn write(&mut self, values: &Values) -> Result<(), Fault>;

    /// Completes the file. Until then it is not a valid file of its format.
    fn finish(&mut self) -> Result<(), Fault>;
}
