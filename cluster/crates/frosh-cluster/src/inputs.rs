//! Parquet files of folders, patterns and object stores, and their vector column.

use anyhow::{Context as _, Result, bail};
use datafusion::arrow::datatypes::{DataType, Schema};
use datafusion::datasource::listing::ListingTableUrl;
use datafusion::prelude::{DataFrame, ParquetReadOptions, SessionContext};
use futures::TryStreamExt as _;
use url::Url;

/// A Parquet file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct File {
    /// Its path, or its URL in an object store.
    pub(crate) url: String,
    pub(crate) bytes: u64,
}

impl File {
    /// Its name without folders.
    pub(crate) fn name(&self) -> &str {
        self.url.rsplit('/').next().unwrap_or(&self.url)
    }
}

/// The files of some paths, folders, patterns and URLs, in the order of their names.
pub(crate) async fn files(context: &SessionContext, patterns: &[String]) -> Result<Vec<File>> {
    let state = context.state();
    let mut files = Vec::new();
    for pattern in patterns {
        let local = !pattern.contains("://");
        let is_glob = pattern.contains(['*', '?', '[']);
        if local && !is_glob {
            std::fs::metadata(pattern).with_context(|| pattern.clone())?;
        }
        let url = listing(pattern).with_context(|| pattern.clone())?;
        let store = context.runtime_env().object_store(&url).with_context(|| pattern.clone())?;
        // A file that is named is taken; of a folder, only the Parquet files.
        let extension = if url.is_collection() && !is_glob { ".parquet" } else { "" };
        let list = url.list_all_files(&state, store.as_ref(), extension).await;
        let list: Vec<_> = match list {
            Ok(list) => {
                list.try_collect().await.with_context(|| format!("cannot list {pattern}"))?
            }
            Err(error) => return Err(error).with_context(|| format!("cannot list {pattern}")),
        };
        let root = match url.scheme() {
            "file" => "/".to_owned(),
            _ => url.object_store().as_str().to_owned(),
        };
        if list.is_empty() {
            bail!(
                "{pattern}: there are no Parquet files; check the path; a folder in a bucket ends with /"
            );
        }
        files.extend(
            list.into_iter().map(|object| File {
                url: format!("{root}{}", object.location),
                bytes: object.size,
            }),
        );
    }
    files.sort();
    if let Some(twice) = files.windows(2).find(|pair| pair[0].url == pair[1].url) {
        bail!("{}: this file is named twice, so its rows would count twice", twice[0].url);
    }
    Ok(files)
}

/// What to list. DataFusion itself takes patterns of paths only, not of URLs.
fn listing(pattern: &str) -> Result<ListingTableUrl> {
    let Some((first, _)) =
        pattern.match_indices(['*', '?', '[']).next().filter(|_| pattern.contains("://"))
    else {
        return Ok(ListingTableUrl::parse(pattern)?);
    };
    let folder = pattern[..first].rfind('/').map_or(0, |slash| slash + 1);
    let (folder, rest) = pattern.split_at(folder);
    Ok(ListingTableUrl::try_new(Url::parse(folder)?, Some(glob::Pattern::new(rest)?))?)
}

/// A table of files.
pub(crate) async fn read(context: &SessionContext, files: &[File]) -> Result<DataFrame> {
    // A path as a URL: in a path, some characters would be a pattern.
    let url = |file: &File| match Url::from_file_path(&file.url) {
        Ok(url) => url.to_string(),
        Err(()) => file.url.clone(),
    };
    let urls: Vec<String> = files.iter().map(url).collect();
    // The files were chosen already, whatever their names end with.
    let options = ParquetReadOptions { file_extension: "", ..ParquetReadOptions::default() };
    let table = context.read_parquet(urls, options).await;
    table.with_context(|| match files {
        [one] => format!("cannot read {}", one.url),
        _ => format!("cannot read {} and {} more files", files[0].url, files.len() - 1),
    })
}

/// The column of vectors: the one that was named, or the only one.
pub(crate) fn vector_column(schema: &Schema, named: Option<&str>) -> Result<String> {
    let is_vector = |kind: &DataType| {
        let values = match kind {
            DataType::List(field)
            | DataType::LargeList(field)
            | DataType::FixedSizeList(field, _) => field.data_type(),
            _ => return false,
        };
        use DataType::{Float16, Float32, Float64, Int8, UInt8};
        matches!(values, Float16 | Float32 | Float64 | Int8 | UInt8)
    };
    let all = || {
        let fields = schema.fields().iter();
        fields.map(|f| format!("{} ({})", f.name(), f.data_type())).collect::<Vec<_>>().join(", ")
    };
    if let Some(name) = named {
        let field = schema.field_with_name(name).ok();
        return match field {
            Some(field) if is_vector(field.data_type()) => Ok(name.to_owned()),
            Some(field) => bail!(
                "column {name} is of type {}; expected lists of f16, f32, f64, i8 or u8. The columns are {}",
                field.data_type(),
                all()
            ),
            None => bail!("there is no column {name}; the columns are {}", all()),
        };
    }
    let vectors: Vec<_> = schema.fields().iter().filter(|f| is_vector(f.data_type())).collect();
    match vectors[..] {
        [one] => Ok(one.name().clone()),
        [] => bail!("there is no column of vectors; the columns are {}", all()),
        _ => bail!(
            "several columns hold vectors: choose one with --column. The columns are {}",
            all()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::datatypes::Field;
    use std::sync::Arc;

    #[test]
    fn the_column_is_found_or_named() {
        let list = |kind| DataType::List(Arc::new(Field::new("item", kind, true)));
        let schema = |fields: Vec<Field>| Schema::new(fields);
        let id = Field::new("id", DataType::Int64, false);
        let words = Field::new("words", list(DataType::Utf8), true);
        let v = Field::new("v", list(DataType::Float32), true);
        let w = Field::new("w", list(DataType::UInt8), true);
        let one = schema(vec![id.clone(), words.clone(), v.clone()]);
        assert_eq!(vector_column(&one, None).unwrap(), "v");
        assert_eq!(vector_column(&one, Some("v")).unwrap(), "v");
        let said =
            |schema: &Schema, name| format!("{:#}", vector_column(schema, name).unwrap_err());
        assert!(said(&one, Some("words")).contains("column words is of type"));
        assert!(said(&one, Some("u")).contains("there is no column u; the columns are id"));
        assert!(said(&schema(vec![id.clone()]), None).contains("no column of vectors"));
        assert!(said(&schema(vec![v, w]), None).contains("choose one with --column"));
    }
}
