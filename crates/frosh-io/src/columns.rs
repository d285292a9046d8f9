//! What the columnar formats, Parquet and Arrow, share: the choice of the column, reading its rows
//! ([`ListSource`]) and writing them ([`ListSink`]).
//!
//! A column of vectors is a list column, of variable size (`List`, `LargeList`) or fixed size
//! (`FixedSizeList`). Its items are `f16`, `f32`, `f64`, `i8` or `u8`, which are kept; 16-bit integers,
//! which become `f32`; or 32-bit integers, which become `f64`. Columns within structures are not
//! considered.

mod guard;
mod lists;
mod sink;

pub(crate) use guard::guard;
pub(crate) use lists::{ListReader, ListSource, Lists, Offsets};
pub(crate) use sink::{BatchWriter, ListSink, list_schema};

use crate::batch::Kind;
use crate::error::{Fault, Hint};
use crate::source::MAX_DIM;
use arrow_schema::{DataType, Field, FieldRef, Schema};
use std::fmt::Display;

/// The fault of a file that breaks the rules of its format.
pub(crate) fn damaged(why: impl Display) -> Fault {
    Fault::file(format!("is damaged: {why}"))
}

/// The column that holds the vectors.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    /// Its number among the columns.
    pub(crate) index: usize,
    /// The type of the lists.
    pub(crate) list: DataType,
    /// The type of the values in the lists.
    pub(crate) item: DataType,
    /// The element type of batches.
    pub(crate) kind: Kind,
}

impl Column {
    /// The column of this name, or the only one that holds vectors.
    pub(crate) fn choose(schema: &Schema, wanted: Option<&str>) -> Result<Self, Fault> {
        let fields = schema.fields();
        if let Some(name) = wanted {
            let Some((index, field)) = fields.iter().enumerate().find(|(_, f)| f.name() == name)
            else {
                let why = format!("has no column {name:?}; {}", list(fields));
                return Err(Fault::file(why).hint(Hint::ChooseColumn));
            };
            return Self::new(index, field).ok_or_else(|| {
                Fault::file(format!(
                    "column {name:?} is {}, expected a list of numbers (f16, f32, f64, or integers of \
                     8, 16 or 32 bits); {}",
                    type_name(field.data_type()),
                    list(fields)
                ))
                .hint(Hint::ChooseColumn)
            });
        }
        let found: Vec<Self> =
            fields.iter().enumerate().filter_map(|(i, f)| Self::new(i, f)).collect();
        match &found[..] {
            [one] => Ok(one.clone()),
            [] => Err(format!(
                "has no column of vectors, which are lists of numbers (f16, f32, f64, or integers of \
                 8, 16 or 32 bits); {}",
                list(fields)
            )
            .into()),
            several => Err(Fault::file(format!(
                "has several columns of vectors; {}",
                list(several.iter().map(|c| &fields[c.index]))
            ))
            .hint(Hint::ChooseColumn)),
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

    /// Values per row, if the lists have a fixed size.
    pub(crate) fn fixed_size(&self) -> Result<Option<usize>, Fault> {
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

/// The first columns and their types, for messages.
fn list<'a>(fields: impl IntoIterator<Item = &'a FieldRef>) -> String {
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

/// The name of a type, for people.
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

/// How many rows of `row_bytes` fit into `bytes`, at least one.
pub(crate) fn rows_in(bytes: usize, row_bytes: usize) -> usize {
    (bytes / row_bytes.max(1)).max(1)
}

#[cfg(test)]
pub(crate) mod tests;
