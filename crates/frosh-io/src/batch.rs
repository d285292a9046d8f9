//! A batch of rows that was read: values of one element type, and where they stand in their file.

use crate::error::{Error, Fault};
use frosh::Element;
use half::f16;
use std::path::Path;
use std::sync::Arc;

/// The element types that batches hold. Files of other integers are widened without loss: 16 bits to
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
    /// All of them.
    pub const ALL: [Kind; 5] = [Kind::F16, Kind::F32, Kind::F64, Kind::U8, Kind::I8];

    /// Its name, as on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Kind::F16 => "f16",
            Kind::F32 => "f32",
            Kind::F64 => "f64",
            Kind::U8 => "u8",
            Kind::I8 => "i8",
        }
    }

    /// Bytes of one value.
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
#[macro_export]
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

impl Values {
    /// No values, of this type.
    pub fn empty(kind: Kind) -> Self {
        match kind {
            Kind::F16 => Values::F16(Vec::new()),
            Kind::F32 => Values::F32(Vec::new()),
            Kind::F64 => Values::F64(Vec::new()),
            Kind::U8 => Values::U8(Vec::new()),
            Kind::I8 => Values::I8(Vec::new()),
        }
    }

    /// Their type.
    pub fn kind(&self) -> Kind {
        match self {
            Values::F16(_) => Kind::F16,
            Values::F32(_) => Kind::F32,
            Values::F64(_) => Kind::F64,
            Values::U8(_) => Kind::U8,
            Values::I8(_) => Kind::I8,
        }
    }

    /// How many.
    pub fn len(&self) -> usize {
        for_values!(self, v => v.len())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Each of them in double precision, which holds every type exactly.
    pub fn to_f64(&self) -> Vec<f64> {
        fn each<T: Copy + Into<f64>>(values: &[T]) -> Vec<f64> {
            values.iter().map(|x| (*x).into()).collect()
        }
        for_values!(self, v => each(v))
    }

    /// Makes it of this type; values of that type stay, to be written over.
    pub(crate) fn turn_into(&mut self, kind: Kind) {
        if self.kind() != kind {
            *self = Values::empty(kind);
        }
    }

    /// Empties it, keeping its memory if it is of this type already.
    pub(crate) fn clear(&mut self, kind: Kind) {
        if self.kind() == kind {
            for_values!(self, v => v.clear());
        } else {
            *self = Values::empty(kind);
        }
    }

    /// Makes it `len` long; new values are zero.
    pub(crate) fn resize(&mut self, len: usize) {
        for_values!(self, v => v.resize(len, Default::default()));
    }

    /// The memory of the values.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        for_values!(self, v => bytemuck::cast_slice_mut(v))
    }

    /// The memory of the values.
    pub(crate) fn bytes(&self) -> &[u8] {
        for_values!(self, v => bytemuck::cast_slice(v))
    }
}

/// Rows that were read together. A batch never spans two files.
#[derive(Clone, Debug)]
pub struct Batch {
    pub(crate) values: Values,
    pub(crate) dim: usize,
    /// Number, in its file, of the first row.
    pub(crate) first: u64,
    /// Which file: for messages.
    pub(crate) path: Arc<Path>,
}

impl Batch {
    /// A batch to be filled.
    pub(crate) fn new(kind: Kind, dim: usize, path: Arc<Path>) -> Self {
        Self { values: Values::empty(kind), dim, first: 0, path }
    }

    /// Rows in it.
    pub fn len(&self) -> usize {
        self.values.len() / self.dim
    }

    /// Whether there are none.
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

    /// A copy without some of the rows, which are given ascending.
    pub fn without(&self, rows: impl IntoIterator<Item = usize>) -> Batch {
        fn each<T: Copy>(values: &mut Vec<T>, dim: usize, rows: impl IntoIterator<Item = usize>) {
            let (mut kept, mut at) = (0, 0);
            let all = values.len() / dim;
            for bad in rows.into_iter().chain([all]) {
                values.copy_within(at * dim..bad * dim, kept * dim);
                kept += bad - at;
                at = (bad + 1).min(all);
            }
            values.truncate(kept * dim);
        }
        let mut batch = self.clone();
        for_values!(&mut batch.values, v => each(v, self.dim, rows));
        batch
    }

    /// Adds file and row to what the library said about rows of this batch, the first of which was row
    /// `from` of the batch.
    pub fn explain(&self, error: frosh::Error, from: usize) -> Error {
        let (row, why) = match error {
            frosh::Error::NotFinite { row, column, value } => {
                (row, format!("column {column} is {value}; mend it, or pass --skip-bad"))
            }
            frosh::Error::TooLarge { row, column, value, limit } => (
                row,
                format!(
                    "column {column} is {value:e}, above the largest magnitude taken, {limit:e}; \
                     scale the data down, or pass --skip-bad"
                ),
            ),
            other => return Error::Engine(other),
        };
        let row = self.first + (from + row) as u64;
        Fault::Row { row, why }.at(&self.path)
    }
}

/// Rows of `T` as the library sees them.
///
/// # Panics
/// If the values are no whole number of rows, which no batch's are.
pub fn rows<T: Element>(values: &[T], dim: usize) -> frosh::Rows<'_, T> {
    frosh::Rows::new(values, dim).expect("a batch holds whole rows")
}
