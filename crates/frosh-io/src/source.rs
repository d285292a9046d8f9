//! What every format's reader is, and what every format's writer is.

use crate::batch::{Kind, Values};
use crate::error::Fault;

/// The largest dimension taken; the same as the library's.
pub(crate) const MAX_DIM: usize = 1 << 24;

/// What a file's header tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Values per row, at least 1 and at most [`MAX_DIM`].
    pub(crate) dim: usize,
    /// Element type of the batches.
    pub(crate) kind: Kind,
    /// Rows in all, where the header or the size tells.
    pub(crate) rows: Option<u64>,
}

/// Reads the rows of one file, in order, a few at a time.
pub(crate) trait Source: Send {
    /// What is known before reading.
    fn shape(&self) -> Shape;

    /// Replaces `values` by the next rows, at most `limit` of them (`limit` is at least 1), and returns
    /// how many; 0 means the end. `values` is of the shape's kind. Row numbers in faults count from 0 at
    /// the start of the file. Memory grows with the rows really there, never with what a header claims.
    fn read(&mut self, limit: usize, values: &mut Values) -> Result<usize, Fault>;

    /// Passes over rows; the end may come before.
    fn skip(&mut self, mut rows: u64) -> Result<(), Fault> {
        let mut scrap = Values::empty(self.shape().kind);
        while rows > 0 {
            let got = self.read(rows.min(1024) as usize, &mut scrap)? as u64;
            if got == 0 {
                break;
            }
            rows -= got;
        }
        Ok(())
    }

    /// Rows left out because they hold nulls, where that was asked for.
    fn left_out(&self) -> u64 {
        0
    }
}

/// Writes rows to one file, in order.
pub(crate) trait Sink {
    /// Takes whole rows, of the kind and dimension that the sink was made for.
    fn write(&mut self, values: &Values) -> Result<(), Fault>;

    /// Completes the file's content. What was written before is not a whole file.
    fn finish(&mut self) -> Result<(), Fault>;
}
