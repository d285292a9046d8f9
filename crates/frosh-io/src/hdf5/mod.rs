//! HDF5 files (`.h5`, `.hdf5`), as h5py writes them and ann-benchmarks publishes them.
//!
//! An HDF5 file is a tree of groups, with data sets as its leaves; a two-dimensional data set of numbers
//! is read as rows of vectors. Supported are:
//! - the superblock, versions 0 to 3, also behind a user block; addresses of 8 bytes (`header.rs`);
//! - object headers, versions 1 and 2: lists of messages that describe a group or a data set (`header.rs`);
//! - groups as symbol tables (a B-tree and a heap of names) or as link messages (`group.rs`);
//! - numbers of either byte order: `f16`, `f32`, `f64`, `u8`, `i8`, and 16- and 32-bit integers, which are
//!   widened (`describe.rs`);
//! - compact, contiguous and chunked storage (`storage.rs`), with these chunk indexes: B-tree version 1,
//!   single chunk, implicit, fixed array, extensible array (`chunk_index.rs`);
//! - the filters gzip, shuffle and Fletcher32 (`storage.rs`).
//!
//! All else is refused with a message that names it: other filters, groups with dense links, B-tree
//! version 2 (data sets that can grow in both dimensions), named types, virtual data sets, external
//! storage, rows that were never written. Checksums of structures are verified.
//!
//! Cost: contiguous values are read straight into the batch, and skipping is free. With chunks, the list
//! of all chunks (40 bytes each) is in memory and, with filters, one row of decoded chunks; each chunk is
//! decoded once, and not at all if all its rows are skipped.
//!
//! Files are written with one contiguous data set, in the format of HDF5 1.8 and later.

mod bytes;
mod chunk_index;
mod describe;
mod group;
mod header;
mod sink;
mod source;
mod storage;
#[cfg(test)]
mod tests;

pub(crate) use sink::sink;
pub(crate) use source::Hdf5Source;

use crate::error::{Fault, Hint};
use bytes::{Input, damaged};
use describe::Description;
use std::collections::HashSet;
use std::fs::File;
use std::path::Path;

/// The data set that is read by default: the name that ann-benchmarks uses.
const DEFAULT_DATASET: &str = "train";

/// Most groups and data sets of a file that are listed.
const MAX_OBJECTS: usize = 100_000;

/// Longest path of a data set in the file, in bytes.
const MAX_PATH: usize = 4096;

/// A data set and its description.
struct Found {
    name: String,
    /// Address of its object header.
    at: u64,
    description: Description,
}

impl Found {
    /// Whether its rows can be read: two dimensions and a supported element type.
    fn readable(&self) -> bool {
        self.description.shape.len() == 2 && self.description.element.number.is_some()
    }

    /// A summary for messages, such as `train (1000 x 128, f32)`.
    fn summary(&self) -> String {
        let shape: Vec<_> = self.description.shape.iter().map(u64::to_string).collect();
        let shape = if shape.is_empty() { "one value".into() } else { shape.join(" x ") };
        format!("{} ({shape}, {})", self.name, self.description.element.name)
    }
}

/// Opens a data set by its path in the file, such as `train` or `group/train`. The default is `train`, or
/// else the only data set that can be read.
pub(crate) fn open(path: &Path, dataset: Option<&str>) -> Result<Hdf5Source, Fault> {
    let (mut input, root) = header::open(File::open(path)?)?;
    let found = match dataset {
        Some(name) => match lookup(&mut input, root, name)? {
            Some(found) => found,
            None => {
                let all = list(&walk(&mut input, root)?);
                return Err(Fault::file(format!("has no data set `{name}`; it has {all}"))
                    .hint(Hint::ChooseDataset));
            }
        },
        None => match lookup(&mut input, root, DEFAULT_DATASET)? {
            Some(found) => found,
            None => only(walk(&mut input, root)?)?,
        },
    };
    Hdf5Source::new(input, found)
}

/// The data sets of a file: names, shapes and element types.
pub(crate) fn names(path: &Path) -> Result<Vec<(String, Vec<u64>, String)>, Fault> {
    let (mut input, root) = header::open(File::open(path)?)?;
    let all = walk(&mut input, root)?.into_iter();
    Ok(all.map(|f| (f.name, f.description.shape, f.description.element.name)).collect())
}

/// The only data set that can be read.
fn only(all: Vec<Found>) -> Result<Found, Fault> {
    let summary = list(&all);
    let mut readable = all.into_iter().filter(Found::readable);
    match (readable.next(), readable.next()) {
        (Some(found), None) => Ok(found),
        (None, _) => Err(Fault::file(format!(
            "has no two-dimensional data set of numbers (of at most 32 bits, or f64); it has {summary}"
        ))),
        (Some(_), Some(_)) => Err(Fault::file(format!(
            "has several data sets and none is called `{DEFAULT_DATASET}`: {summary}"
        ))
        .hint(Hint::ChooseDataset)),
    }
}

/// The first data sets, for messages.
fn list(all: &[Found]) -> String {
    const SHOWN: usize = 20;
    let mut list: Vec<_> = all.iter().take(SHOWN).map(Found::summary).collect();
    if all.is_empty() {
        list.push("no data sets".into());
    }
    if all.len() > SHOWN {
        list.push(format!("and {} more", all.len() - SHOWN));
    }
    list.join(", ")
}

/// Follows a path from the root group.
fn lookup(input: &mut Input, root: u64, path: &str) -> Result<Option<Found>, Fault> {
    let mut at = root;
    for name in path.split('/').filter(|name| !name.is_empty()) {
        let messages = header::messages(input, at)?;
        let members = group::members(input, &messages)?;
        match members.into_iter().find(|member| member.0 == name) {
            Some(member) => at = member.1,
            None => return Ok(None),
        }
    }
    let description = describe::description(&header::messages(input, at)?)?;
    Ok(description.map(|description| Found { name: path.into(), at, description }))
}

/// All data sets, in order of their names within each group. A group with several links to it is listed
/// once.
fn walk(input: &mut Input, root: u64) -> Result<Vec<Found>, Fault> {
    let mut found = Vec::new();
    let mut groups = HashSet::new();
    let mut todo = vec![(String::new(), root)];
    let mut seen = 1;
    while let Some((name, at)) = todo.pop() {
        let messages = header::messages(input, at)?;
        if let Some(description) = describe::description(&messages)? {
            found.push(Found { name, at, description });
        } else if group::is_group(&messages) && groups.insert(at) {
            let members = group::members(input, &messages)?;
            seen += members.len();
            if seen > MAX_OBJECTS || name.len() > MAX_PATH {
                return Err(damaged("a group", "there are too many groups and data sets"));
            }
            // In reverse, because the last one is popped first.
            for (member, at) in members.into_iter().rev() {
                let slash = if name.is_empty() { "" } else { "/" };
                todo.push((format!("{name}{slash}{member}"), at));
            }
        }
    }
    Ok(found)
}
