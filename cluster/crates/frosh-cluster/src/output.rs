//! What the program prints and writes.

use anyhow::{Context as _, Result, bail};
use datafusion::arrow::array::{ArrayRef, AsArray, RecordBatch, StringBuilder};
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::arrow::json::ArrayWriter;
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::datasource::listing::ListingTableUrl;
use datafusion::prelude::SessionContext;
use frosh::AtomicFile;
use object_store::ObjectStoreExt as _;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

/// The message of an error with its causes, without repetitions.
pub(crate) fn explain(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        if text.contains(&cause) {
            continue;
        }
        if !text.is_empty() {
            text += ": ";
        }
        text += &cause;
    }
    text
}

/// A number with separators.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

pub(crate) fn print(text: &str) -> Result<()> {
    Ok(std::io::stdout().write_all(text.as_bytes())?)
}

/// Whether a name is one in an object store.
pub(crate) fn is_url(name: &str) -> bool {
    name.contains("://")
}

/// Checks a place for a result before the work is done: its folder is there and can be written to.
pub(crate) fn check_place(name: &str, force: bool) -> Result<()> {
    if is_url(name) {
        return Ok(());
    }
    let path = Path::new(name);
    if path.exists() && !force {
        bail!("{name} is there already: choose another name, or replace it with --force");
    }
    AtomicFile::begin(path)?;
    Ok(())
}

/// Writes a result to a file or to an object store, whole or not at all.
pub(crate) async fn write(context: &SessionContext, name: &str, bytes: Vec<u8>) -> Result<()> {
    if is_url(name) {
        let url = ListingTableUrl::parse(name).with_context(|| name.to_owned())?;
        let store = context.runtime_env().object_store(&url)?;
        store.put(url.prefix(), bytes.into()).await.with_context(|| name.to_owned())?;
        return Ok(());
    }
    let file = AtomicFile::begin(Path::new(name))?;
    file.file().write_all(&bytes).with_context(|| name.to_owned())?;
    file.commit()?;
    Ok(())
}

/// Reads a file, also from an object store.
pub(crate) async fn read(context: &SessionContext, name: &str) -> Result<Vec<u8>> {
    if is_url(name) {
        let url = ListingTableUrl::parse(name).with_context(|| name.to_owned())?;
        let store = context.runtime_env().object_store(&url)?;
        let found = store.get(url.prefix()).await.with_context(|| name.to_owned())?;
        return Ok(found.bytes().await.with_context(|| name.to_owned())?.to_vec());
    }
    std::fs::read(name).with_context(|| name.to_owned())
}

/// Prints rows as a table or as JSON. Bytes are shown in hexadecimal.
pub(crate) fn print_rows(batches: &[RecordBatch], json: bool) -> Result<()> {
    let batches = batches.iter().map(readable).collect::<Result<Vec<_>>>()?;
    if json {
        let mut writer = ArrayWriter::new(Vec::new());
        writer.write_batches(&batches.iter().collect::<Vec<_>>())?;
        writer.finish()?;
        let text = String::from_utf8(writer.into_inner())?;
        return print(&format!("{}\n", if text.is_empty() { "[]" } else { &text }));
    }
    print(&format!("{}\n", pretty_format_batches(&batches)?))
}

/// The same rows with bytes as hexadecimal text.
fn readable(batch: &RecordBatch) -> Result<RecordBatch> {
    let (mut fields, mut columns) = (Vec::new(), Vec::new());
    for (field, column) in batch.schema().fields().iter().zip(batch.columns()) {
        let text = hexadecimal(column);
        let kind = text.as_ref().map_or(field.data_type(), |_| &DataType::Utf8);
        fields.push(Field::new(field.name(), kind.clone(), true));
        columns.push(text.unwrap_or_else(|| Arc::clone(column)));
    }
    Ok(RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)?)
}

fn hexadecimal(column: &ArrayRef) -> Option<ArrayRef> {
    let values: Box<dyn Iterator<Item = Option<&[u8]>>> = match column.data_type() {
        DataType::Binary => Box::new(column.as_binary::<i32>().iter()),
        DataType::LargeBinary => Box::new(column.as_binary::<i64>().iter()),
        DataType::BinaryView => Box::new(column.as_binary_view().iter()),
        _ => return None,
    };
    /// More bytes than a code has are a model or a sketch, and nobody reads those.
    const SHOWN: usize = 64;
    let mut out = StringBuilder::new();
    for value in values {
        out.append_option(value.map(|bytes| {
            let mut text = String::new();
            for byte in &bytes[..bytes.len().min(SHOWN)] {
                let _ = write!(text, "{byte:02x}");
            }
            if bytes.len() > SHOWN {
                let _ = write!(text, "... ({} bytes)", bytes.len());
            }
            text
        }));
    }
    Some(Arc::new(out.finish()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_errors_are_readable() {
        assert_eq!(
            [count(0), count(999), count(1000), count(12_345_678)],
            ["0", "999", "1,000", "12,345,678"]
        );
        let error = anyhow::anyhow!("b is wrong").context("a: b is wrong").context("c");
        assert_eq!(explain(&error), "c: a: b is wrong");
    }
}
