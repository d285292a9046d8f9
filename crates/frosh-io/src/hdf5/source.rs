//! Reads the rows of a data set.

use super::Found;
use super::bytes::Input;
use super::describe::{self, Form, Number};
use super::header;
use super::storage::Storage;
use crate::batch::Values;
use crate::error::Fault;
use crate::source::{MAX_DIM, Shape, Source};

/// Bytes that are widened at a time.
const WIDENED: usize = 256 << 10;

/// The rows of one data set.
pub(crate) struct Hdf5Source {
    input: Input,
    storage: Storage,
    number: Number,
    dim: usize,
    rows: u64,
    /// The next row.
    row: u64,
    scratch: Vec<u8>,
}

impl Hdf5Source {
    pub(super) fn new(mut input: Input, found: Found) -> Result<Self, Fault> {
        let summary = found.summary();
        let refuse = |why: &str| Err(Fault::File(format!("data set {summary}: {why}")));
        let &[rows, dim] = &found.description.shape[..] else {
            return refuse("expected two dimensions, rows and columns; choose one with --dataset");
        };
        let Some(number) = found.description.element.number else {
            return refuse(
                "expected f16, f32, f64, u8, i8, or integers of 16 or 32 bits; convert it, or choose \
                 another with --dataset",
            );
        };
        if dim < 1 || dim > MAX_DIM as u64 {
            return refuse(&format!("expected 1 to {MAX_DIM} columns"));
        }
        let messages = header::messages(&mut input, found.at)?;
        let storage = Storage::new(
            &mut input,
            describe::layout(&messages)?,
            describe::filters(&messages)?,
            [rows, dim],
            &found.description.limits,
            number.form.bytes(),
        )?;
        let dim = dim as usize;
        Ok(Self { input, storage, number, dim, rows, row: 0, scratch: Vec::new() })
    }
}

impl Source for Hdf5Source {
    fn shape(&self) -> Shape {
        Shape { dim: self.dim, kind: self.number.form.kind(), rows: Some(self.rows) }
    }

    fn read(&mut self, limit: usize, values: &mut Values) -> Result<usize, Fault> {
        values.clear(self.number.form.kind());
        let row_bytes = self.dim * self.number.form.bytes();
        let foreign = self.number.big_endian != cfg!(target_endian = "big");
        let direct = matches!(self.number.form, Form::Same(_));
        let mut got = 0;
        while got < limit && self.row < self.rows {
            let mut want = (self.rows - self.row).min((limit - got) as u64);
            if !direct {
                want = want.min((WIDENED / row_bytes).max(1) as u64);
            }
            let count = self.storage.ready(&mut self.input, self.row, want)? as usize;
            let out = if direct {
                values.resize((got + count) * self.dim);
                &mut values.bytes_mut()[got * row_bytes..]
            } else {
                self.scratch.resize(count * row_bytes, 0);
                &mut self.scratch[..]
            };
            self.storage.fill(&mut self.input, self.row, row_bytes, out)?;
            if foreign {
                swap(out, self.number.form.bytes());
            }
            if !direct {
                widen(self.number.form, &self.scratch, values);
            }
            got += count;
            self.row += count as u64;
        }
        Ok(got)
    }

    fn skip(&mut self, rows: u64) -> Result<(), Fault> {
        self.row = self.row.saturating_add(rows).min(self.rows);
        Ok(())
    }
}

/// Turns the bytes of every value around.
fn swap(bytes: &mut [u8], width: usize) {
    // Constant widths, so that the compiler can do many values at a time.
    match width {
        2 => bytes.as_chunks_mut::<2>().0.iter_mut().for_each(|value| value.reverse()),
        4 => bytes.as_chunks_mut::<4>().0.iter_mut().for_each(|value| value.reverse()),
        8 => bytes.as_chunks_mut::<8>().0.iter_mut().for_each(|value| value.reverse()),
        _ => {}
    }
}

/// Adds integers, in this machine's order of bytes, as floats that hold them without loss.
fn widen(form: Form, bytes: &[u8], values: &mut Values) {
    let pairs = bytes.as_chunks::<2>().0.iter();
    let fours = bytes.as_chunks::<4>().0.iter();
    match (form, values) {
        (Form::I16, Values::F32(v)) => v.extend(pairs.map(|&b| f32::from(i16::from_ne_bytes(b)))),
        (Form::U16, Values::F32(v)) => v.extend(pairs.map(|&b| f32::from(u16::from_ne_bytes(b)))),
        (Form::I32, Values::F64(v)) => v.extend(fours.map(|&b| f64::from(i32::from_ne_bytes(b)))),
        (Form::U32, Values::F64(v)) => v.extend(fours.map(|&b| f64::from(u32::from_ne_bytes(b)))),
        // The caller cleared the values to the form's kind.
        _ => debug_assert!(false, "no integers to widen"),
    }
}
