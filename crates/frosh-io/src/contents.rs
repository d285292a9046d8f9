//! What is inside files that can hold several sets of vectors.

use crate::error::{Fault, Result};
use crate::format::Format;
use crate::open::{self, Options};
use crate::{arrow, hdf5, npy, parquet};
use std::fs::File;
use std::path::Path;

/// The arrays, data sets or columns of a file, in words; `None` for formats that hold just one.
pub fn contents(path: &Path, options: &Options) -> Result<Option<(Format, Vec<String>)>> {
    let list = || -> std::result::Result<_, Fault> {
        let format = open::look(path, options)?.format;
        let columns = |all: Vec<(String, String)>| -> Vec<String> {
            all.into_iter().map(|(name, kind)| format!("{name} ({kind})")).collect()
        };
        let all = match format {
            Format::Npz => npy::names(File::open(path)?)?,
            Format::Hdf5 => hdf5::names(path)?
                .into_iter()
                .map(|(name, shape, kind)| {
                    let shape: Vec<String> = shape.iter().map(u64::to_string).collect();
                    format!("{name} ({} of {kind})", shape.join(" x "))
                })
                .collect(),
            Format::Parquet => columns(parquet::describe(path)?),
            Format::Arrow => columns(arrow::describe(path)?),
            _ => return Ok(None),
        };
        Ok(Some((format, all)))
    };
    list().map_err(|fault| fault.at(path))
}
