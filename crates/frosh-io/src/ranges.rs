//! Reading ranges of rows on any thread, so that several threads can share the work of reading.
//!
//! [`Batches`](crate::Batches) reads all rows in order, in a thread of its own. A [`RangeReader`] reads the rows of a
//! range on the thread that calls it, with a file handle of its own. Several readers of the same files do not disturb
//! each other.
//!
//! Cost: a reader opens a file once and keeps it open while the ranges ascend. Rows that are stored one after the other
//! are read straight into the batch. In Parquet files the reader finds the page of the first row by the headers of the
//! pages before it, and decodes from there (`parquet/page_table.rs`).

use crate::batch::{Batch, add_range};
use crate::batches::bad_rows;
use crate::error::{Error, Fault, Result};
use crate::ids::IdSink;
use crate::open::{self, Options};
use crate::source::{Cutting, Places, Source};
use crate::vectors::{FileFacts, Vectors};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Bytes of values in a batch: small enough for the second-level cache of one core.
const BATCH_BYTES: usize = 1 << 20;

/// Least bytes of a part of a unit that is compressed as a whole: two parts share up to a megabyte that is decompressed
/// twice.
const INNER_BYTES: usize = 8 << 20;

/// What all readers of the same files share.
pub(crate) struct Shared {
    pub(crate) files: Vec<FileFacts>,
    pub(crate) options: Options,
    /// Number of the first row of each file, and of the row after the last; empty if a file cannot be cut. Rows that would
    /// be left out are counted.
    starts: Vec<u64>,
}

impl Shared {
    pub(crate) fn new(files: Vec<FileFacts>, options: Options) -> Self {
        let starts = starts(&files, &options).unwrap_or_default();
        Self { files, options, starts }
    }

    /// The file that holds a row, which is before the end.
    fn file_of(&self, row: u64) -> usize {
        self.starts.partition_point(|start| *start <= row) - 1
    }
}

/// See [`Shared::starts`].
fn starts(files: &[FileFacts], options: &Options) -> Option<Vec<u64>> {
    // Ids of two types are an error that names the first id of the second type. Only the serial reader finds it.
    let types = files.iter().map(|file| file.id_type);
    if options.id_rule.convert.is_none() && types.clone().zip(types.skip(1)).any(|(a, b)| a != b) {
        return None;
    }
    let mut starts = vec![0u64];
    for file in files {
        starts.push(starts.last()?.checked_add(file.cutting.as_ref()?.rows)?);
    }
    Some(starts)
}

impl Vectors {
    /// Whether ranges of rows can be read on their own ([`Vectors::ranges`]). That is so if every file is Parquet, or is
    /// neither text nor compressed as a whole, and is no stream. If there are ids, all files must have ids of one type.
    pub fn cuttable(&self) -> bool {
        !self.shared.starts.is_empty()
    }

    /// Number of rows of all files if they are [cuttable](Vectors::cuttable). Unlike [`Vectors::rows`], it counts the rows
    /// that [`Options::skip_bad`] would leave out.
    pub fn stored_rows(&self) -> Option<u64> {
        self.shared.starts.last().copied()
    }

    /// A reader of ranges of rows. It reads nothing before [`RangeReader::start`].
    ///
    /// ```
    /// use frosh_io::{Format, Kind, Options, Output, Target, Values, Vectors};
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("a.npy");
    /// # let target = Target { format: Format::Npy, kind: Kind::F32, dim: 1, rows: None, name: None };
    /// # let mut output = Output::create(&path, &target)?;
    /// # output.write_values(&Values::F32((0..100).map(|i| i as f32).collect()), 1)?;
    /// # output.finish()?;
    /// let vectors = Vectors::open(&[&path], &Options::default())?;
    /// assert!(vectors.cuttable());
    /// // Two threads, each with a reader of its own.
    /// let sums: Vec<f64> = std::thread::scope(|scope| {
    ///     let sum = |rows: std::ops::Range<u64>| -> frosh_io::Result<f64> {
    ///         let (mut reader, mut sum) = (vectors.ranges()?, 0.0);
    ///         reader.start(rows);
    ///         while let Some(batch) = reader.next()? {
    ///             sum += batch.values().to_f64().iter().sum::<f64>();
    ///         }
    ///         Ok(sum)
    ///     };
    ///     let threads = [0..50, 50..100].map(|rows| scope.spawn(move || sum(rows)));
    ///     threads.map(|thread| thread.join().expect("no panic")).into_iter().collect::<Result<_, _>>()
    /// })?;
    /// assert_eq!(sums.iter().sum::<f64>(), 4950.0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn ranges(&self) -> Result<RangeReader> {
        if !self.cuttable() {
            let cannot = |file: &&FileFacts| file.cutting.is_none();
            let file = self.files().iter().find(cannot).unwrap_or(&self.files()[0]);
            let why = "its rows can only be read from front to back, not from the middle";
            return Err(Error::usage(format!("{}: {why}", file.path.display())));
        }
        let first = &self.files()[0];
        let shared = Arc::clone(&self.shared);
        let path = Arc::from(Path::new(""));
        Ok(RangeReader {
            ids: IdSink::new(shared.options.id_rule, shared.options.id_column.as_deref()),
            batch: Batch::new(first.kind, first.dim, path),
            batch_bytes: BATCH_BYTES,
            left: 0..0,
            open: None,
            left_out: Vec::new(),
            shared,
        })
    }

    /// Reads the rows of a range on the calling thread: [`Vectors::ranges`] and [`RangeReader::start`] in one call.
    pub fn batches_in(&self, rows: Range<u64>) -> Result<RangeReader> {
        let mut reader = self.ranges()?;
        reader.start(rows);
        Ok(reader)
    }

    /// Cuts the rows of all files into pieces of about `bytes` bytes of values, in order. The pieces are a function of the
    /// files alone, and none has rows of two files. They end where compressed parts of a file end, as far as
    /// possible: a piece may be larger where a file cannot be cut within such a part. There are none if the files are not
    /// [cuttable](Vectors::cuttable).
    pub fn pieces(&self, bytes: usize) -> impl Iterator<Item = Range<u64>> + Send + use<> {
        let shared = Arc::clone(&self.shared);
        let (mut from, mut open) = (0, None);
        // One piece at a time: a damaged file may claim any number of rows.
        std::iter::from_fn(move || {
            if from >= shared.starts.last().copied()? {
                return None;
            }
            let file = shared.file_of(from);
            let (facts, start) = (&shared.files[file], shared.starts[file]);
            let row_bytes = facts.dim.saturating_mul(facts.kind.bytes()).max(1);
            let most = ((bytes / row_bytes) as u64).max(1);
            let least = ((INNER_BYTES / row_bytes) as u64).max(1);
            let cutting = facts.cutting.as_ref()?;
            let mut end = cutting.next_cut(from - start, most, least);
            if cutting.is_inner(end) {
                if open.as_ref().is_none_or(|open: &OpenFile| open.number != file) {
                    // Whoever reads the piece will report what is wrong.
                    open = open_file(file, facts, &shared.options).ok();
                }
                let snapped = open.as_mut().map_or(end, |open| open.source.snap(end));
                if snapped > from - start {
                    end = snapped;
                }
            }
            let end = start + end;
            let piece = from..end;
            from = end;
            Some(piece)
        })
    }
}

impl Cutting {
    /// The end of the piece that begins at row `from`, if pieces are to have about `most` rows. Parts of units have at
    /// least about `least` rows.
    fn next_cut(&self, from: u64, most: u64, least: u64) -> u64 {
        let (ends, parts) = match &self.places {
            Places::Multiples(unit) => {
                let unit = (*unit).max(1);
                let step = (most / unit).max(1).saturating_mul(unit);
                return (from / step + 1).saturating_mul(step).min(self.rows);
            }
            Places::Ends { ends, parts } => (ends, (*parts).max(1)),
        };
        for unit in ends.partition_point(|end| *end <= from).. {
            let start = if unit == 0 { 0 } else { ends[unit - 1] };
            let Some(end) = ends.get(unit) else { break };
            let rows = end - start;
            let cuts = rows.div_ceil(most).min(rows / least).min(parts);
            if cuts > 1 {
                if from < start {
                    return start;
                }
                // The next of evenly spaced cuts. `from` may be a little before one, where a page begins.
                let cut =
                    |i: u64| start + (u128::from(rows) * u128::from(i) / u128::from(cuts)) as u64;
                let far = (rows / cuts / 2).max(1);
                let i = (u128::from(from - start) * u128::from(cuts) / u128::from(rows)) as u64;
                return (i..cuts)
                    .map(cut)
                    .find(|cut| *cut >= from.saturating_add(far))
                    .unwrap_or(*end);
            }
            if end - from >= most {
                return *end;
            }
        }
        self.rows
    }
}

impl Cutting {
    /// Whether a cut is within a unit.
    fn is_inner(&self, row: u64) -> bool {
        match &self.places {
            Places::Multiples(_) => false,
            Places::Ends { ends, .. } => row < self.rows && ends.binary_search(&row).is_err(),
        }
    }
}

/// Reads ranges of rows on the calling thread. See [`Vectors::ranges`].
///
/// Ranges that ascend are fastest: a file stays open from one to the next.
pub struct RangeReader {
    shared: Arc<Shared>,
    /// Rows of the range that are still to be read.
    left: Range<u64>,
    open: Option<OpenFile>,
    batch: Batch,
    batch_bytes: usize,
    /// Numbers of rows left out that were not taken yet.
    left_out: Vec<Range<u64>>,
    ids: IdSink,
}

/// The file that is being read.
struct OpenFile {
    /// Its number among the files.
    number: usize,
    source: Box<dyn Source>,
    path: Arc<Path>,
    /// The rows of the file that the source gives next.
    rows: Range<u64>,
}

impl RangeReader {
    /// Makes batches of about so many bytes of values; the default is a megabyte. Each batch has at least one row.
    pub fn batch_bytes(mut self, bytes: usize) -> Self {
        self.batch_bytes = bytes;
        self
    }

    /// Begins a range, in place of what is left of the one before. Numbers count the rows of all files, also those that are
    /// left out. Rows after the end of the data are not in the range.
    pub fn start(&mut self, rows: Range<u64>) {
        let end = self.shared.starts.last().copied().unwrap_or(0);
        self.left = rows.start..rows.end.min(end);
        self.left_out.clear();
    }

    /// The next rows of the range; `None` at its end and after an error.
    ///
    /// This is not an `Iterator`: the batch is borrowed, so that its memory can be filled again.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<&Batch>> {
        while !self.left.is_empty() {
            match self.fill() {
                Ok(true) => return Ok(Some(&self.batch)),
                Ok(false) => {}
                Err(error) => {
                    self.left = 0..0;
                    self.open = None;
                    return Err(error);
                }
            }
        }
        Ok(None)
    }

    /// Gives the batch of the last call of [`RangeReader::next`] away, and takes the memory of another one in its place.
    pub fn exchange(&mut self, other: Option<Batch>) -> Batch {
        let empty =
            || Batch::new(self.batch.values.kind(), self.batch.dim, Arc::from(Path::new("")));
        let other = other.unwrap_or_else(empty);
        std::mem::replace(&mut self.batch, other)
    }

    /// The numbers, ascending, of the rows of the range that were left out since the last call (see
    /// [`Options::skip_bad`]). At the end of the range, all of them are known.
    pub fn take_left_out(&mut self) -> Vec<Range<u64>> {
        std::mem::take(&mut self.left_out)
    }

    /// Reads the next batch; false if there are no good rows in what was read.
    fn fill(&mut self) -> Result<bool> {
        let shared = Arc::clone(&self.shared);
        let number = shared.file_of(self.left.start);
        let (file, file_start) = (&shared.files[number], shared.starts[number]);
        let end = self.left.end.min(shared.starts[number + 1]);
        let rows = self.left.start - file_start..end - file_start;
        let mut open = match self.open.take() {
            Some(open) if open.number == number && open.rows.start <= rows.start => open,
            _ => {
                let options = &shared.options;
                self.ids = IdSink::new(options.id_rule, options.id_column.as_deref());
                open_file(number, file, options)?
            }
        };
        let path = Arc::clone(&open.path);
        let fault = |fault: Fault| fault.at(&path);
        if open.rows != rows {
            open.source.select(rows.clone()).map_err(fault)?;
            open.rows = rows;
        }
        let batch = &mut self.batch;
        let limit = (self.batch_bytes / (file.dim * file.kind.bytes())).max(1);
        batch.values.set_kind(file.kind);
        batch.dim = file.dim;
        batch.path = Arc::clone(&path);
        batch.first = open.rows.start;
        batch.file_start = file_start;
        batch.ids = None;
        let got = open.source.read(limit, &mut batch.values).map_err(fault)?;
        batch.left_out = open.source.take_left_out();
        open.rows.start += got as u64 + batch.left_out_rows();
        if got == 0 && !open.rows.is_empty() {
            let why = "ends before this row: it is cut short, or changed while it was being read";
            return Err(fault(Fault::row(open.rows.start, why)));
        }
        if shared.options.skip_bad && got > 0 {
            let bad = bad_rows(&batch.values, file.dim);
            if !bad.is_empty() {
                *batch = batch.without(bad);
            }
        }
        if let Some(ids) = open.source.ids().filter(|_| got > 0) {
            // Only now, so that ids of rows that are left out are not looked at.
            for (rows, number) in batch.runs() {
                let row = number - file_start;
                if ids.read(row, rows.len(), &mut self.ids).map_err(fault)? != rows.len() {
                    return Err(fault("the column of ids ends before the vectors".into()));
                }
            }
            batch.ids = Some(self.ids.take());
        }
        for rows in &batch.left_out {
            add_range(&mut self.left_out, file_start + rows.start..file_start + rows.end);
        }
        self.left.start = file_start + open.rows.start;
        self.open = Some(open);
        Ok(!self.batch.is_empty())
    }
}

/// Opens a file once more. It must be as it was.
fn open_file(number: usize, file: &FileFacts, options: &Options) -> Result<OpenFile> {
    let path: Arc<Path> = file.path.clone().into();
    let fault = |fault: Fault| fault.at(&path);
    let source = open::open(&file.path, options).map_err(fault)?.source;
    let (shape, cutting) = (source.shape(), source.cutting());
    if (shape.dim, shape.kind, &cutting) != (file.dim, file.kind, &file.cutting) {
        return Err(fault("changed while it was being read".into()));
    }
    let rows = 0..cutting.map_or(0, |cutting| cutting.rows);
    Ok(OpenFile { number, source, path, rows })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cuts(rows: u64, places: Places, most: u64, least: u64) -> Vec<u64> {
        let cutting = Cutting { rows, places };
        let mut cuts = vec![0];
        while cuts[cuts.len() - 1] < rows {
            cuts.push(cutting.next_cut(cuts[cuts.len() - 1], most, least));
            assert!(cuts.is_sorted_by(|a, b| a < b), "{cuts:?}");
        }
        cuts
    }

    #[test]
    fn files_are_cut_where_it_costs_least() {
        assert_eq!(cuts(10, Places::Multiples(1), 4, 1), [0, 4, 8, 10]);
        assert_eq!(cuts(10, Places::Multiples(3), 4, 1), [0, 3, 6, 9, 10]);
        assert_eq!(cuts(10, Places::Multiples(30), 4, 1), [0, 10]);
        let ends = |ends: &[u64], parts| Places::Ends { ends: ends.to_vec(), parts };
        // Small units are taken together, and an empty one is passed over.
        assert_eq!(cuts(9, ends(&[2, 2, 4, 6, 9], 9), 4, 1), [0, 4, 9]);
        // A large unit is cut evenly, and what is before it ends where it begins.
        assert_eq!(cuts(112, ends(&[2, 102, 112], 9), 30, 9), [0, 2, 27, 52, 77, 102, 112]);
        assert_eq!(cuts(112, ends(&[2, 102, 112], 2), 30, 9), [0, 2, 52, 102, 112]);
        assert_eq!(cuts(112, ends(&[2, 102, 112], 9), 30, 40), [0, 2, 52, 102, 112]);
        assert_eq!(cuts(112, ends(&[2, 102, 112], 1), 30, 9), [0, 102, 112]);
        // Claims of any size are cut without overflow.
        let huge = Cutting { rows: u64::MAX, places: ends(&[u64::MAX], u64::MAX) };
        assert_eq!(huge.next_cut(0, 1, 1), 1);
        assert_eq!(huge.next_cut(u64::MAX - 1, 1, 1), u64::MAX);
        let huge = Cutting { rows: u64::MAX, places: Places::Multiples(u64::MAX - 1) };
        assert_eq!(huge.next_cut(u64::MAX - 1, 1, 1), u64::MAX);
    }
}
