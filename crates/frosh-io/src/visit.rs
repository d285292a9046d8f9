//! Random access to rows of a stream, by their numbers: for re-ranking and for samples.
//!
//! Cost: if the rows of a format can be found by their number, only those rows are read; other files are
//! read from their start.

use crate::batch::{Values, for_values};
use crate::error::{Error, Fault, Result};
use crate::open;
use crate::vectors::Vectors;

/// Rows that are at most this far apart are read together, with the rows between them.
const NEAR: u64 = 8;
/// Most rows that are read together.
const RUN: u64 = 64;

impl Vectors {
    /// Calls `take` with the number and values of each of the rows `ids`, which must ascend. With
    /// [`Options::skip_bad`](crate::Options::skip_bad), all rows are read, and rows that cannot be used are passed over.
    ///
    /// ```
    /// use frosh_io::{Options, Vectors};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("a.csv");
    /// # std::fs::write(&path, "1,2\n3,4\n5,6\n").unwrap();
    /// let vectors = Vectors::open(&[path], &Options::default())?;
    /// let mut sums = Vec::new();
    /// vectors.visit(&[0, 2], |id, row| sums.push((id, row.iter().sum::<f64>())))?;
    /// assert_eq!(sums, [(0, 3.0), (2, 11.0)]);
    /// # Ok::<(), frosh_io::Error>(())
    /// ```
    pub fn visit(&self, ids: &[u64], mut take: impl FnMut(u64, &[f64])) -> Result<()> {
        if self.options().skip_bad {
            return self.visit_good_rows(ids, take);
        }
        let (mut todo, mut before) = (ids, 0u64);
        for file in self.files() {
            let Some(&first) = todo.first() else { return Ok(()) };
            if file.rows.is_some_and(|rows| first >= before + rows) {
                before += file.rows.unwrap_or(0);
                continue;
            }
            let fault = |fault: Fault| fault.at(&file.path);
            if !file.rereadable {
                return Err(fault(
                    "single rows cannot be read from a stream: save it as a file first".into(),
                ));
            }
            let mut source = open::open(&file.path, self.options()).map_err(fault)?.source;
            let dim = source.shape().dim;
            let mut values = Values::empty(source.shape().kind);
            let mut row = vec![0f64; dim];
            let mut at = 0u64; // number of the next row of this file
            let end = loop {
                let Some(&id) = todo.first() else { return Ok(()) };
                let wanted = id - before;
                if file.rows.is_some_and(|rows| wanted >= rows) {
                    break file.rows.unwrap_or(0);
                }
                if wanted > at + NEAR && file.rows.is_some() {
                    source.skip(wanted - at).map_err(fault)?;
                    at = wanted;
                }
                // Extends the run as long as the next row is near.
                let mut last = wanted;
                for next in todo.iter().map(|id| id - before).take(RUN as usize) {
                    if next > last + NEAR || next >= at + RUN {
                        break;
                    }
                    last = next;
                }
                let got = source.read((last.max(at) - at + 1).min(RUN) as usize, &mut values);
                let got = got.map_err(fault)? as u64;
                if got == 0 {
                    break at;
                }
                while let Some((&id, rest)) = todo.split_first() {
                    if id - before >= at + got {
                        break;
                    }
                    let i = (id - before - at) as usize;
                    for_values!(&values, v => widen(&v[i * dim..][..dim], &mut row));
                    take(id, &row);
                    todo = rest;
                }
                at += got;
            };
            before += end;
        }
        self.check_all_visited(todo, before)
    }

    /// As [`Vectors::visit`], but rows that cannot be used are passed over. Which rows those are is known only after
    /// reading them, so that all rows are read.
    fn visit_good_rows(&self, ids: &[u64], mut take: impl FnMut(u64, &[f64])) -> Result<()> {
        let (mut todo, mut rows) = (ids, 0u64);
        let mut row = vec![0f64; self.dim()];
        let mut batches = self.batches();
        while let Some(batch) = batches.next()?
            && !todo.is_empty()
        {
            for (range, first) in batch.runs() {
                // What is before this run was left out.
                todo = &todo[todo.partition_point(|id| *id < first)..];
                while let Some((&id, rest)) = todo.split_first()
                    && id < first + range.len() as u64
                {
                    let i = range.start + (id - first) as usize;
                    let dim = batch.dim();
                    for_values!(batch.values(), v => widen(&v[i * dim..][..dim], &mut row));
                    take(id, &row);
                    todo = rest;
                }
                rows = first + range.len() as u64;
            }
        }
        let rows = batches.take_left_out().last().map_or(rows, |last| rows.max(last.end));
        self.check_all_visited(&todo[todo.partition_point(|id| *id < rows)..], rows)
    }

    /// Refuses numbers of rows that are not there.
    fn check_all_visited(&self, todo: &[u64], rows: u64) -> Result<()> {
        match todo.first() {
            None => Ok(()),
            Some(id) => Err(Error::usage(format!(
                "{}: row {id} is asked for, but the data has only {rows} rows: is it the data that was \
                 encoded?",
                self.files()[0].path.display()
            ))),
        }
    }
}

fn widen<T: Copy + Into<f64>>(from: &[T], to: &mut [f64]) {
    to.iter_mut().zip(from).for_each(|(to, x)| *to = (*x).into());
}
