//! Single rows of a stream, by their numbers: for re-ranking and for taking samples.
//!
//! Cost: formats whose rows can be jumped to read just those rows; the others are read from the front.

use crate::batch::Values;
use crate::error::{Error, Fault, Result};
use crate::for_values;
use crate::open;
use crate::vectors::Vectors;

/// Rows that are nearer than this are read in one go with those between them.
const NEAR: u64 = 8;
/// Most rows read in one go.
const RUN: u64 = 64;

impl Vectors {
    /// Calls `take` with each of the rows `ids` (ascending, each once), as `f64`, in that order.
    pub fn visit(&self, ids: &[u64], mut take: impl FnMut(u64, &[f64])) -> Result<()> {
        let (mut todo, mut before) = (ids, 0u64);
        for file in self.files() {
            let Some(&first) = todo.first() else { return Ok(()) };
            if file.rows.is_some_and(|rows| first >= before + rows) {
                before += file.rows.unwrap_or(0);
                continue;
            }
            let fault = |fault: Fault| fault.at(&file.path);
            if !file.again {
                return Err(fault(
                    "single rows cannot be read from a stream: save it as a file first".into(),
                ));
            }
            let mut source = open::open(&file.path, self.options()).map_err(fault)?.source;
            let dim = source.shape().dim;
            let mut values = Values::empty(source.shape().kind);
            let mut row = vec![0f64; dim];
            let mut at = 0u64; // row of this file that comes next
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
                // As far as the next ids follow closely.
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
        match todo.first() {
            None => Ok(()),
            Some(id) => Err(Error::Usage(format!(
                "{}: row {id} is asked for, but the data has only {before} rows: is it the data that was \
                 encoded?",
                self.files()[0].path.display()
            ))),
        }
    }
}

fn widen<T: Copy + Into<f64>>(from: &[T], to: &mut [f64]) {
    to.iter_mut().zip(from).for_each(|(to, x)| *to = (*x).into());
}
