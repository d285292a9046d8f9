//! What the columnar formats, Parquet and Arrow, share: the choice of the column, reading its rows
//! ([`ListSource`]) and writing them ([`ListSink`]).
//!
//! A column of vectors is a list column, of variable size (`List`, `LargeList`) or fixed size
//! (`FixedSizeList`). Its items are `f16`, `f32`, `f64`, `i8` or `u8`, which are kept; 16-bit integers,
//! which become `f32`; or 32-bit integers, which become `f64`. A column within structures is chosen by its
//! path, with dots between the names.
//!
//! Instead, each dimension may have a column of its own ([`Table`], [`TableSource`]).

mod guard;
mod lists;
mod sink;
mod table;

pub(crate) use guard::guard;
pub(crate) use lists::{ListReader, ListSource, Lists, Offsets};
pub(crate) use sink::{BatchWriter, ListSink, list_schema};
pub(crate) use table::{Table, TableReader, TableSource};

use crate::batch::Kind;
use crate::error::{Fault, Hint};
use crate::source::MAX_DIM;
use arrow_schema::{DataType, Field, FieldRef, Fields, Schema};
use std::fmt::Display;

/// The fault of a file that breaks the rules of its format.
pub(crate) fn damaged(why: impl Display) -> Fault {
    Fault::file(format!("is damaged: {why}"))
}

/// The column that holds the vectors.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    /// Its number among the columns; within structures, that of the outermost, then those of the fields.
    pub(crate) path: Vec<usize>,
    /// The names on that path.
    pub(crate) names: Vec<String>,
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
            let Some((path, names, field)) = find(fields, name) else {
                let why = format!("has no column {name:?}; {}", list(fields));
                return Err(Fault::file(why).hint(Hint::ChooseColumn));
            };
            return Self::new(path, names, field).ok_or_else(|| {
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
            fields.iter().enumerate().filter_map(|(i, f)| Self::at_top(i, f)).collect();
        match &found[..] {
            [one] => Ok(one.clone()),
            [] => Err(Fault::file(format!(
                "has no column of vectors, which are lists of numbers (f16, f32, f64, or integers of \
                 8, 16 or 32 bits); {}",
                list(fields)
            ))
            .hint(Hint::ChooseColumns)),
            several => Err(Fault::file(format!(
                "has several columns of vectors; {}",
                list(several.iter().map(|c| &fields[c.path[0]]))
            ))
            .hint(Hint::ChooseColumn)),
        }
    }

    /// This column outside of structures, if it holds vectors.
    fn at_top(index: usize, field: &Field) -> Option<Self> {
        Self::new(vec![index], vec![field.name().clone()], field)
    }

    /// This column, if it holds vectors.
    fn new(path: Vec<usize>, names: Vec<String>, field: &Field) -> Option<Self> {
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
        Some(Self { path, names, list: list.clone(), item, kind })
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

/// The column of ids of this name, or the only one of a type that `fits`: the number of its outermost column, and the names
/// on the path to it.
pub(crate) fn choose_ids(
    schema: &Schema,
    wanted: Option<&str>,
    fits: impl Fn(&DataType) -> bool,
) -> Result<(usize, Vec<String>), Fault> {
    let fields = schema.fields();
    let Some(name) = wanted else {
        let mut found = fields.iter().enumerate().filter(|(_, field)| fits(field.data_type()));
        return match (found.next(), found.count()) {
            (Some((index, field)), 0) => Ok((index, vec![field.name().clone()])),
            (first, more) => {
                let count = usize::from(first.is_some()) + more;
                Err(crate::ids::choose_one(count, &list(fields)))
            }
        };
    };
    let Some((path, names, field)) = find(fields, name) else {
        let why = format!("has no column {name:?}; {}", list(fields));
        return Err(Fault::file(why).hint(Hint::ChooseIdColumn));
    };
    if !fits(field.data_type()) {
        let kind = match field.data_type() {
            DataType::Dictionary(..) => "categories (text by dictionary)".into(),
            other => type_name(other),
        };
        let why =
            format!("column {name:?} is {kind}, expected whole numbers or text; {}", list(fields));
        return Err(Fault::file(why).hint(Hint::ChooseIdColumn));
    }
    Ok((path[0], names))
}

/// The column of this name, or at the end of this path of names with dots between. A name may have dots in it,
/// so that at each level the whole rest is tried before the part up to the first dot.
fn find<'a>(fields: &'a Fields, name: &str) -> Option<(Vec<usize>, Vec<String>, &'a FieldRef)> {
    let (mut fields, mut rest) = (fields, name);
    let (mut path, mut names) = (Vec::new(), Vec::new());
    loop {
        let whole = fields.iter().enumerate().find(|(_, field)| field.name() == rest);
        let (index, field) = match (whole, rest.split_once('.')) {
            (Some(found), _) => found,
            (None, Some((first, after))) => {
                rest = after;
                let is_struct = |field: &Field| matches!(field.data_type(), DataType::Struct(_));
                let fits = |field: &Field| field.name() == first && is_struct(field);
                fields.iter().enumerate().find(|(_, field)| fits(field))?
            }
            (None, None) => return None,
        };
        path.push(index);
        names.push(field.name().clone());
        match field.data_type() {
            DataType::Struct(inner) if whole.is_none() => fields = inner,
            _ => return Some((path, names, field)),
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
    let mut names: Vec<String> = all.iter().take(SHOWN).map(|f| named(f)).collect();
    if all.len() > SHOWN {
        names.push(format!("and {} more", all.len() - SHOWN));
    }
    format!("columns: {}", names.join(", "))
}

/// A column and its type, for messages. Vectors within a structure are named with their path.
fn named(field: &Field) -> String {
    let mut text = format!("{:?} ({})", field.name(), type_name(field.data_type()));
    if let DataType::Struct(inner) = field.data_type() {
        for item in inner.iter().filter(|item| Column::at_top(0, item).is_some()).take(4) {
            let path = format!("{}.{}", field.name(), item.name());
            text += &format!(", {path:?} ({})", type_name(item.data_type()));
        }
    }
    text
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
