//! What the columnar formats, Parquet and Arrow, share: which column holds the vectors, how its rows
//! become [`crate::batch::Values`], and how rows to be written become record batches.
//!
//! A column of vectors is a list column: variable (`List`, `LargeList`) or of a fixed size
//! (`FixedSizeList`). Its items may be `f16`, `f32`, `f64`, `i8` or `u8`, which are kept; 16-bit integers,
//! which become `f32`; or 32-bit integers, which become `f64`. Only columns at the top level count, not
//! fields of structures.

mod guard;
mod lists;

pub(crate) use guard::guard;
pub(crate) use lists::{Chunks, Lists, Reader, Spans};

use crate::batch::{Kind, Values};
use crate::error::Fault;
use crate::for_values;
use crate::source::MAX_DIM;
use arrow_array::types::{Float16Type, Float32Type, Float64Type, Int8Type, UInt8Type};
use arrow_array::{ArrayRef, FixedSizeListArray, PrimitiveArray, RecordBatch};
use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};
use std::fmt::Display;
use std::sync::Arc;

/// What is said of files that need zstd when it is not built in.
pub(crate) const NEEDS_ZSTD: &str = "is compressed with zstd, which this build of frosh does not read; \
     build with --features zstd or rewrite it with snappy or lz4";

/// A fault for content that cannot be.
pub(crate) fn damaged(why: impl Display) -> Fault {
    Fault::File(format!("is damaged: {why}"))
}

/// The column that holds the vectors.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    /// Its number among the top-level columns.
    pub(crate) index: usize,
    /// The type of the lists.
    pub(crate) list: DataType,
    /// The type of the values in the lists.
    pub(crate) item: DataType,
    /// What the values become.
    pub(crate) kind: Kind,
}

impl Column {
    /// The column of this name, or the only one that holds vectors.
    pub(crate) fn choose(schema: &Schema, wanted: Option<&str>) -> Result<Self, Fault> {
        let fields = schema.fields();
        if let Some(name) = wanted {
            let Some((index, field)) = fields.iter().enumerate().find(|(_, f)| f.name() == name)
            else {
                return Err(format!("has no column {name:?}; {}", listed(fields)).into());
            };
            return Self::new(index, field).ok_or_else(|| {
                Fault::File(format!(
                    "column {name:?} is {}, not a list of numbers (f16, f32, f64, or integers of 8, \
                     16 or 32 bits); choose another with --column; {}",
                    type_name(field.data_type()),
                    listed(fields)
                ))
            });
        }
        let found: Vec<Self> =
            fields.iter().enumerate().filter_map(|(i, f)| Self::new(i, f)).collect();
        match &found[..] {
            [one] => Ok(one.clone()),
            [] => Err(format!(
                "has no column of vectors, which would be a list of numbers (f16, f32, f64, or \
                 integers of 8, 16 or 32 bits); {}",
                listed(fields)
            )
            .into()),
            several => Err(format!(
                "has several columns of vectors; choose one with --column; {}",
                listed(several.iter().map(|c| &fields[c.index]))
            )
            .into()),
        }
    }

    /// This column, if it holds vectors.
    fn new(index: usize, field: &Field) -> Option<Self> {
        let list = field.data_type();
        let (DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _)) =
            list
        else {
            return None;
        };
        let item = item.data_type().clone();
        let kind = match item {
            DataType::Float16 => Kind::F16,
            DataType::Float32 | DataType::Int16 | DataType::UInt16 => Kind::F32,
            DataType::Float64 | DataType::Int32 | DataType::UInt32 => Kind::F64,
            DataType::UInt8 => Kind::U8,
            DataType::Int8 => Kind::I8,
            _ => return None,
        };
        Some(Self { index, list: list.clone(), item, kind })
    }

    /// Values per row, where the type of the lists tells.
    pub(crate) fn fixed(&self) -> Result<Option<usize>, Fault> {
        let DataType::FixedSizeList(_, size) = self.list else {
            return Ok(None);
        };
        match usize::try_from(size) {
            Ok(dim @ 1..=MAX_DIM) => Ok(Some(dim)),
            _ => Err(format!("has lists of {size} values, expected 1 to {MAX_DIM}").into()),
        }
    }
}

/// The columns and their types.
pub(crate) fn describe(schema: &Schema) -> Vec<(String, String)> {
    schema.fields().iter().map(|f| (f.name().clone(), type_name(f.data_type()))).collect()
}

/// The columns with their types, for messages: the first few of them.
fn listed<'a>(fields: impl IntoIterator<Item = &'a FieldRef>) -> String {
    const SHOWN: usize = 40;
    let all: Vec<_> = fields.into_iter().collect();
    if all.is_empty() {
        return "it has no columns".into();
    }
    let mut names: Vec<String> = all
        .iter()
        .take(SHOWN)
        .map(|f| format!("{:?} ({})", f.name(), type_name(f.data_type())))
        .collect();
    if all.len() > SHOWN {
        names.push(format!("and {} more", all.len() - SHOWN));
    }
    format!("columns: {}", names.join(", "))
}

/// A type in a few words.
fn type_name(data_type: &DataType) -> String {
    match data_type {
        DataType::List(item) | DataType::LargeList(item) => {
            format!("list of {}", type_name(item.data_type()))
        }
        DataType::FixedSizeList(item, size) => {
            format!("list of {size} {}", type_name(item.data_type()))
        }
        DataType::Struct(fields) => format!("structure of {} fields", fields.len()),
        DataType::Dictionary(_, value) => type_name(value),
        DataType::Float16 => "f16".into(),
        DataType::Float32 => "f32".into(),
        DataType::Float64 => "f64".into(),
        DataType::Int8 => "i8".into(),
        DataType::Int16 => "i16".into(),
        DataType::Int32 => "i32".into(),
        DataType::Int64 => "i64".into(),
        DataType::UInt8 => "u8".into(),
        DataType::UInt16 => "u16".into(),
        DataType::UInt32 => "u32".into(),
        DataType::UInt64 => "u64".into(),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "text".into(),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => "bytes".into(),
        other => format!("{other:?}").to_lowercase(),
    }
}

/// Rows that are `row_bytes` long each, as many as fit into `bytes`, at least one.
pub(crate) fn rows_in(bytes: usize, row_bytes: usize) -> usize {
    (bytes / row_bytes.max(1)).max(1)
}

/// Cuts what is written into record batches of always the same number of rows, so that the file does not
/// depend on how the rows came in.
pub(crate) struct Blocks {
    schema: SchemaRef,
    dim: usize,
    /// Values of a full block.
    full: usize,
    held: Values,
}

impl Blocks {
    /// Blocks of `rows` rows, with one column of this name.
    pub(crate) fn new(kind: Kind, dim: usize, column: &str, rows: usize) -> Result<Self, Fault> {
        if !(1..=MAX_DIM).contains(&dim) {
            return Err(format!("cannot hold rows of {dim} values, only 1 to {MAX_DIM}").into());
        }
        let item = match kind {
            Kind::F16 => DataType::Float16,
            Kind::F32 => DataType::Float32,
            Kind::F64 => DataType::Float64,
            Kind::U8 => DataType::UInt8,
            Kind::I8 => DataType::Int8,
        };
        let list = DataType::FixedSizeList(Arc::new(Field::new("item", item, false)), dim as i32);
        let schema = Arc::new(Schema::new(vec![Field::new(column, list, false)]));
        Ok(Self { schema, dim, full: dim * rows.max(1), held: Values::empty(kind) })
    }

    pub(crate) fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    /// Takes rows, and hands every block that is full to `write`.
    pub(crate) fn add(
        &mut self,
        values: &Values,
        mut write: impl FnMut(RecordBatch) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        if values.kind() != self.held.kind() || !values.len().is_multiple_of(self.dim) {
            return Err(format!(
                "takes rows of {} values of {}, but got {} values of {}",
                self.dim,
                self.held.kind(),
                values.len(),
                values.kind()
            )
            .into());
        }
        let mut from = 0;
        while from < values.len() {
            let to = values.len().min(from + self.full - self.held.len());
            self.hold(values, from, to);
            from = to;
            if self.held.len() == self.full {
                write(self.block()?)?;
            }
        }
        Ok(())
    }

    /// The last block, which may be shorter than the others.
    pub(crate) fn rest(&mut self) -> Result<Option<RecordBatch>, Fault> {
        if self.held.is_empty() { Ok(None) } else { self.block().map(Some) }
    }

    /// Adds a part of `values` to what is held.
    fn hold(&mut self, values: &Values, from: usize, to: usize) {
        match (&mut self.held, values) {
            (Values::F16(held), Values::F16(v)) => held.extend_from_slice(&v[from..to]),
            (Values::F32(held), Values::F32(v)) => held.extend_from_slice(&v[from..to]),
            (Values::F64(held), Values::F64(v)) => held.extend_from_slice(&v[from..to]),
            (Values::U8(held), Values::U8(v)) => held.extend_from_slice(&v[from..to]),
            (Values::I8(held), Values::I8(v)) => held.extend_from_slice(&v[from..to]),
            _ => {} // `add` has made sure that the types agree.
        }
    }

    /// What is held, as a record batch.
    fn block(&mut self) -> Result<RecordBatch, Fault> {
        let empty = Values::empty(self.held.kind());
        let items: ArrayRef = match std::mem::replace(&mut self.held, empty) {
            Values::F16(v) => Arc::new(PrimitiveArray::<Float16Type>::new(v.into(), None)),
            Values::F32(v) => Arc::new(PrimitiveArray::<Float32Type>::new(v.into(), None)),
            Values::F64(v) => Arc::new(PrimitiveArray::<Float64Type>::new(v.into(), None)),
            Values::U8(v) => Arc::new(PrimitiveArray::<UInt8Type>::new(v.into(), None)),
            Values::I8(v) => Arc::new(PrimitiveArray::<Int8Type>::new(v.into(), None)),
        };
        // The next block will be as long: no growing step by step.
        let expect = self.full.min(items.len());
        for_values!(&mut self.held, v => v.reserve_exact(expect));
        let DataType::FixedSizeList(item, size) = self.schema.field(0).data_type() else {
            return Err("is not written: the schema has no list".into());
        };
        let lists = FixedSizeListArray::try_new(item.clone(), *size, items, None);
        let lists = lists.map_err(|e| Fault::File(format!("cannot be written: {e}")))?;
        RecordBatch::try_new(self.schema.clone(), vec![Arc::new(lists)])
            .map_err(|e| Fault::File(format!("cannot be written: {e}")))
    }
}

#[cfg(test)]
pub(crate) mod tests;
