//! The arrays, data sets or columns of a file that can hold several.

use crate::error::{Fault, Result, visible};
use crate::format::Format;
use crate::open::{self, Options};
use crate::{arrow, hdf5, npy, parquet, safetensors};
use std::fs::File;
use std::path::Path;

/// Describes the arrays, data sets or columns of a file, each in a few words such as `train (1000 x 128 of f32)`.
/// `None` for formats that hold only one set of vectors, and for standard input and pipes.
pub fn contents(path: &Path, options: &Options) -> Result<Option<(Format, Vec<String>)>> {
    // The bytes of a pipe can be read only once, and are needed for its rows.
    if !std::fs::metadata(path).is_ok_and(|file| file.is_file()) {
        return Ok(None);
    }
    let list = || -> std::result::Result<_, Fault> {
        let open::Detected { format, mut bytes, .. } = open::detect(path, options)?;
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
            Format::Safetensors => safetensors::tensors(&mut bytes)?
                .into_iter()
                .map(|tensor| format!("{} ({})", tensor.name, tensor.describe()))
                .collect(),
            Format::Parquet => columns(parquet::describe(path)?),
            Format::Arrow => columns(arrow::describe(path)?),
            _ => return Ok(None),
        };
        Ok(Some((format, all.iter().map(|name| visible(name)).collect())))
    };
    list().map_err(|fault| fault.at(path))
}
