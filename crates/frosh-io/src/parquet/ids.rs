//! Ids in a column of a Parquet file: integers, text or UUIDs.
//!
//! The crate's reader of single columns is used. It gives values as slices of their page or dictionary: its reader of
//! Arrow arrays would copy a value for each row, and a few bytes of a file can name one long value in any number of
//! rows. Only values stored as what they differ from the one before (`DELTA_BYTE_ARRAY`) are copied; pages of these are
//! read one row at a time.

use super::pages::CheckedFile;
use super::row_limit::{CheckedGroups, RowLimit};
use super::{check, fault, metadata};
use crate::columns::{choose_ids, damaged, guard};
use crate::error::Fault;
use crate::ids::{IdSink, IdSource, IdType, Raw};
use ::parquet::arrow::arrow_reader::RowGroups as _;
use ::parquet::basic::{ConvertedType, LogicalType, Type};
use ::parquet::column::reader::{ColumnReader, get_column_reader};
use ::parquet::file::metadata::ParquetMetaData;
use ::parquet::schema::types::{ColumnDescriptor, SchemaDescriptor};
use arrow_schema::DataType;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// Rows that are read in one step.
const STEP: usize = 1 << 10;

/// What the values of a column are.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Signed,
    Unsigned,
    Text,
    Uuid,
}

/// Opens the column of this name, or the only one that can be ids.
pub(crate) fn open_ids(path: &Path, column: Option<&str>) -> Result<Box<dyn IdSource>, Fault> {
    let file = File::open(path)?;
    guard(|| {
        let meta = metadata(&file)?;
        let schema = meta.parquet_schema();
        let fits = |data_type: &DataType| match data_type {
            DataType::Utf8 | DataType::Binary | DataType::FixedSizeBinary(16) => true,
            other => other.is_integer(),
        };
        let (root, names) = choose_ids(meta.schema(), column, fits)?;
        let (leaf, kind) = find(schema, root, &names)?;
        let length = file.metadata()?.len();
        let (mut ends, mut rows) = (Vec::new(), 0u64);
        for group in meta.metadata().row_groups() {
            let here = u64::try_from(group.num_rows()).map_err(damaged)?;
            rows = rows.checked_add(here).ok_or_else(|| damaged("it claims too many rows"))?;
            ends.push(rows);
            let chunk = group.columns().get(leaf);
            check(chunk.ok_or_else(|| damaged("a row group lacks the column"))?, length)?;
        }
        let (file, meta) = (Arc::new(CheckedFile(file)), meta.metadata().clone());
        let limit = RowLimit::new(1).without_prefixes();
        Ok(Box::new(ParquetIds {
            file,
            meta,
            leaf,
            kind,
            ends,
            row: 0,
            step: STEP,
            limit,
            reader: None,
        }) as Box<dyn IdSource>)
    })
}

/// The leaf of the schema with this path, and what its values are.
fn find(schema: &SchemaDescriptor, root: usize, names: &[String]) -> Result<(usize, Kind), Fault> {
    let fits = |leaf: &usize| {
        schema.get_column_root_idx(*leaf) == root && schema.column(*leaf).path().parts() == names
    };
    let leaf = (0..schema.num_columns()).find(fits);
    let leaf = leaf.ok_or_else(|| damaged("the column is not in the schema"))?;
    let column = schema.column(leaf);
    if column.max_rep_level() != 0 {
        return Err(damaged("the column of ids is a list"));
    }
    let kind = kind(&column).ok_or_else(|| {
        let name = names.join(".");
        Fault::file(format!("column {name:?} is neither whole numbers nor text"))
    })?;
    Ok((leaf, kind))
}

fn kind(column: &ColumnDescriptor) -> Option<Kind> {
    let logical = column.logical_type_ref();
    let converted = column.converted_type();
    match column.physical_type() {
        Type::INT32 | Type::INT64 => match (logical, converted) {
            (Some(LogicalType::Integer(int)), _) if !int.is_signed => Some(Kind::Unsigned),
            (Some(LogicalType::Integer(_)), _) => Some(Kind::Signed),
            (Some(_), _) => None,
            (
                None,
                ConvertedType::UINT_8
                | ConvertedType::UINT_16
                | ConvertedType::UINT_32
                | ConvertedType::UINT_64,
            ) => Some(Kind::Unsigned),
            (
                None,
                ConvertedType::NONE
                | ConvertedType::INT_8
                | ConvertedType::INT_16
                | ConvertedType::INT_32
                | ConvertedType::INT_64,
            ) => Some(Kind::Signed),
            _ => None,
        },
        Type::BYTE_ARRAY => match logical {
            None | Some(LogicalType::String | LogicalType::Enum | LogicalType::Json) => {
                (converted != ConvertedType::DECIMAL).then_some(Kind::Text)
            }
            _ => None,
        },
        Type::FIXED_LEN_BYTE_ARRAY => (matches!(logical, Some(LogicalType::Uuid))
            && column.type_length() == 16)
            .then_some(Kind::Uuid),
        _ => None,
    }
}

/// Reads the ids of all row groups.
struct ParquetIds {
    file: Arc<CheckedFile>,
    meta: Arc<ParquetMetaData>,
    leaf: usize,
    kind: Kind,
    /// Number of rows up to the end of each row group.
    ends: Vec<u64>,
    /// The next row.
    row: u64,
    /// Rows per step.
    step: usize,
    limit: RowLimit,
    /// The number of a row group, and what reads it from the next row on; none before it is begun and after a fault.
    reader: Option<(usize, ColumnReader)>,
}

/// Calls a method of the reader of whatever type; refuses types that ids cannot have.
macro_rules! each_type {
    ($reader:expr, $r:ident => $body:expr) => {
        match $reader {
            ColumnReader::Int32ColumnReader($r) => $body,
            ColumnReader::Int64ColumnReader($r) => $body,
            ColumnReader::ByteArrayColumnReader($r) => $body,
            ColumnReader::FixedLenByteArrayColumnReader($r) => $body,
            _ => return Err(damaged("the column is not of the type that the schema gives")),
        }
    };
}

impl ParquetIds {
    /// Number of the row group of the next row.
    fn group(&self) -> usize {
        self.ends.partition_point(|end| *end <= self.row)
    }

    /// Moves to a row, which is not before the next.
    fn seek(&mut self, row: u64) -> Result<(), Fault> {
        let skipped = row - self.row;
        self.row = row;
        let group = self.group();
        if let Some((_, mut reader)) = self.reader.take().filter(|(open, _)| *open == group) {
            self.skip(&mut reader, skipped)?;
            self.reader = Some((group, reader));
        }
        Ok(())
    }

    /// Skips rows, a step at a time: skipping may decode them.
    fn skip(&self, reader: &mut ColumnReader, mut rows: u64) -> Result<(), Fault> {
        while rows > 0 {
            let count = rows.min(self.step as u64) as usize;
            let done = guard(|| each_type!(reader, r => r.skip_records(count).map_err(fault)))?;
            if done != count {
                return Err(damaged("the column of ids ends too early"));
            }
            rows -= count as u64;
        }
        Ok(())
    }

    /// Opens the reader at the next row.
    fn open(&self, group: usize) -> Result<ColumnReader, Fault> {
        let before = if group == 0 { 0 } else { self.ends[group - 1] };
        let mut reader = guard(|| {
            let (file, meta) = (self.file.clone(), self.meta.clone());
            let groups = CheckedGroups::new(file, meta, vec![group], self.limit.clone());
            let mut pages = groups.column_chunks(self.leaf).map_err(fault)?;
            let pages = pages.next().ok_or_else(|| damaged("a row group lacks the column"))?;
            let descr = self.meta.file_metadata().schema_descr().column(self.leaf);
            Ok(get_column_reader(descr, pages.map_err(fault)?))
        })?;
        self.skip(&mut reader, self.row - before)?;
        Ok(reader)
    }

    /// Reads at most `most` rows of the current row group.
    fn some(&mut self, most: usize, sink: &mut IdSink) -> Result<usize, Fault> {
        let group = self.group();
        let Some(end) = self.ends.get(group) else { return Ok(0) };
        let count = (end - self.row).min(most.min(self.step) as u64) as usize;
        let mut reader = match self.reader.take() {
            Some((open, reader)) if open == group => reader,
            _ => self.open(group)?,
        };
        let most_level = self.meta.file_metadata().schema_descr().column(self.leaf).max_def_level();
        let (kind, row) = (self.kind, self.row);
        guard(|| {
            let mut levels = Vec::new();
            /// Reads values and gives them to the sink.
            macro_rules! give {
                ($r:ident, $value:ident => $raw:expr) => {{
                    let mut values = Vec::new();
                    let read = $r.read_records(count, Some(&mut levels), None, &mut values);
                    let (records, got, _) = read.map_err(fault)?;
                    let nulls = levels.iter().filter(|level| **level < most_level).count();
                    if records != count || got + nulls != count {
                        return Err(damaged("the column of ids ends too early"));
                    }
                    let mut values = values.iter();
                    for i in 0..count {
                        let null = levels.get(i).is_some_and(|level| *level < most_level);
                        let value = if null { None } else { values.next() };
                        let pushed = match value {
                            None => sink.push(Raw::Null),
                            Some($value) => sink.push($raw),
                        };
                        pushed.map_err(|reason| Fault::row(row + i as u64, reason))?;
                    }
                }};
            }
            match &mut reader {
                ColumnReader::Int32ColumnReader(r) => give!(r, value => Raw::Number(match kind {
                    Kind::Unsigned => value.cast_unsigned().into(),
                    _ => (*value).into(),
                })),
                ColumnReader::Int64ColumnReader(r) => give!(r, value => Raw::Number(match kind {
                    Kind::Unsigned => value.cast_unsigned().into(),
                    _ => (*value).into(),
                })),
                ColumnReader::ByteArrayColumnReader(r) => {
                    give!(r, value => Raw::Text(value.data()))
                }
                ColumnReader::FixedLenByteArrayColumnReader(r) => {
                    give!(r, value => Raw::Text(uuid(value.data()).as_bytes()));
                }
                _ => return Err(damaged("the column is not of the type that the schema gives")),
            }
            Ok(())
        })?;
        self.reader = Some((group, reader));
        self.row += count as u64;
        Ok(count)
    }
}

impl IdSource for ParquetIds {
    fn id_type(&self) -> Option<IdType> {
        Some(match self.kind {
            Kind::Signed | Kind::Unsigned => IdType::Number,
            Kind::Text | Kind::Uuid => IdType::Text,
        })
    }

    fn read(&mut self, row: u64, most: usize, sink: &mut IdSink) -> Result<usize, Fault> {
        let mut done = 0;
        // A row group without rows is passed by `group`.
        while done < most {
            // The reader fails before a page that is to be read one row at a time, and before any id of the step is taken.
            let at = row + done as u64;
            let got = self.seek(at).and_then(|()| self.some(most - done, sink));
            match got {
                Ok(0) => break,
                Ok(got) => done += got,
                Err(_) if self.limit.found_prefixes() && self.step > 1 => {
                    self.step = 1;
                    self.limit = RowLimit::new(1);
                    self.reader = None;
                    self.row = at;
                }
                Err(fault) => return Err(fault),
            }
        }
        Ok(done)
    }
}

/// The usual text of a UUID: groups of hexadecimal digits.
fn uuid(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(36);
    for (i, byte) in bytes.iter().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text += &format!("{byte:02x}");
    }
    text
}
