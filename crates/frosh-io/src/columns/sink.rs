//! Writes rows as a column of lists of a fixed size: the [`Sink`] of both formats.

use crate::batch::{Kind, Values, for_values};
use crate::error::Fault;
use crate::source::{MAX_DIM, Sink};
use arrow_array::types::{Float16Type, Float32Type, Float64Type, Int8Type, UInt8Type};
use arrow_array::{ArrayRef, FixedSizeListArray, PrimitiveArray, RecordBatch};
use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};
use std::sync::Arc;

/// Writes record batches to a file of one format.
pub(crate) trait BatchWriter {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), Fault>;

    /// Completes the file.
    fn finish(&mut self) -> Result<(), Fault>;
}

/// A schema with one column of this name, which holds lists of `dim` values.
pub(crate) fn list_schema(kind: Kind, dim: usize, column: &str) -> Result<SchemaRef, Fault> {
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
    Ok(Arc::new(Schema::new(vec![Field::new(column, list, false)])))
}

/// Groups rows into record batches of a fixed number of rows, so that the file does not depend on the sizes
/// of the batches that were read.
pub(crate) struct ListSink<W> {
    writer: W,
    schema: SchemaRef,
    /// The type of the values in the lists.
    item: FieldRef,
    dim: usize,
    /// Values of a full record batch.
    full: usize,
    /// Values that are not written yet.
    pending: Values,
}

impl<W: BatchWriter> ListSink<W> {
    /// Writes record batches of `rows` rows. `schema` is one of [`list_schema`].
    pub(crate) fn new(
        writer: W,
        schema: SchemaRef,
        kind: Kind,
        rows: usize,
    ) -> Result<Self, Fault> {
        let DataType::FixedSizeList(item, dim) = schema.field(0).data_type() else {
            return Err("cannot be written: the schema has no list".into());
        };
        let (item, dim) = (item.clone(), *dim as usize);
        let full = dim * rows.max(1);
        Ok(Self { writer, schema, item, dim, full, pending: Values::empty(kind) })
    }

    /// Adds a part of `values` to the pending values.
    fn append(&mut self, values: &Values, from: usize, to: usize) {
        match (&mut self.pending, values) {
            (Values::F16(p), Values::F16(v)) => p.extend_from_slice(&v[from..to]),
            (Values::F32(p), Values::F32(v)) => p.extend_from_slice(&v[from..to]),
            (Values::F64(p), Values::F64(v)) => p.extend_from_slice(&v[from..to]),
            (Values::U8(p), Values::U8(v)) => p.extend_from_slice(&v[from..to]),
            (Values::I8(p), Values::I8(v)) => p.extend_from_slice(&v[from..to]),
            _ => {} // Cannot happen: `write` has checked the element type.
        }
    }

    /// Writes the pending values as a record batch.
    fn write_pending(&mut self) -> Result<(), Fault> {
        let empty = Values::empty(self.pending.kind());
        let items: ArrayRef = match std::mem::replace(&mut self.pending, empty) {
            Values::F16(v) => Arc::new(PrimitiveArray::<Float16Type>::new(v.into(), None)),
            Values::F32(v) => Arc::new(PrimitiveArray::<Float32Type>::new(v.into(), None)),
            Values::F64(v) => Arc::new(PrimitiveArray::<Float64Type>::new(v.into(), None)),
            Values::U8(v) => Arc::new(PrimitiveArray::<UInt8Type>::new(v.into(), None)),
            Values::I8(v) => Arc::new(PrimitiveArray::<Int8Type>::new(v.into(), None)),
        };
        // Reserves memory for the next record batch, which is as long.
        let expected = self.full.min(items.len());
        for_values!(&mut self.pending, v => v.reserve_exact(expected));
        let lists = FixedSizeListArray::try_new(self.item.clone(), self.dim as i32, items, None);
        let batch = lists
            .and_then(|lists| RecordBatch::try_new(self.schema.clone(), vec![Arc::new(lists)]))
            .map_err(|e| Fault::file(format!("cannot be written: {e}")))?;
        self.writer.write(&batch)
    }
}

impl<W: BatchWriter> Sink for ListSink<W> {
    fn write(&mut self, values: &Values) -> Result<(), Fault> {
        if values.kind() != self.pending.kind() || !values.len().is_multiple_of(self.dim) {
            return Err(format!(
                "takes rows of {} values of {}, but got {} values of {}",
                self.dim,
                self.pending.kind(),
                values.len(),
                values.kind()
            )
            .into());
        }
        let mut from = 0;
        while from < values.len() {
            let to = values.len().min(from + self.full - self.pending.len());
            self.append(values, from, to);
            from = to;
            if self.pending.len() == self.full {
                self.write_pending()?;
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Fault> {
        if !self.pending.is_empty() {
            self.write_pending()?;
        }
        self.writer.finish()
    }
}
