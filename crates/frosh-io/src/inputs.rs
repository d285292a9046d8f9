//! From the inputs of a call (files, folders, patterns) to a list of files.

use crate::error::{Error, Fault, Hint, Result};
use crate::format::Format;
use crate::open::STDIN;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The files that the inputs stand for. The files of a folder or a pattern are sorted by path.
pub(crate) fn expand(inputs: &[impl AsRef<OsStr>]) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for input in inputs {
        let path = Path::new(input);
        // A file's name may be any bytes; a pattern is text.
        let pattern = input.as_ref().to_str().filter(|text| has_wildcard(text));
        if input.as_ref() == STDIN || path.is_file() {
            paths.push(path.to_owned());
        } else if path.is_dir() {
            let before = paths.len();
            add_folder(path, &mut paths)?;
            if paths.len() == before {
                let why = "holds no file whose name tells a format: name the files themselves";
                return Err(Fault::file(why).hint(Hint::ChooseFormat).at(path));
            }
            paths[before..].sort();
        } else if let Some(pattern) = pattern.filter(|_| !path.exists()) {
            let before = paths.len();
            add_matches(pattern, &mut paths)?;
            if paths.len() == before {
                return Err(Error::usage(format!("no file matches {pattern:?}")));
            }
            paths[before..].sort();
        } else {
            // A missing file, or something special such as a pipe: opening it will tell.
            paths.push(path.to_owned());
        }
    }
    if paths.is_empty() {
        return Err(Error::usage("no input: name files, a folder, a pattern, or -"));
    }
    if paths.iter().filter(|p| p.as_os_str() == STDIN).count() > 1 {
        return Err(Error::usage("standard input (-) can be read only once"));
    }
    Ok(paths)
}

fn has_wildcard(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

/// Adds all files below a folder that are not hidden and whose names tell a format.
fn add_folder(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    // Hugging Face `datasets` keeps the results of operations beside the data of a saved dataset, which has
    // a file of this name.
    let saved_dataset = folder.join("state.json").is_file();
    for path in list(folder)? {
        if saved_dataset && is_cache(&path) {
            continue;
        }
        if path.is_dir() {
            // A link to a folder is not followed: it could lead back to a folder above it.
            if !path.is_symlink() {
                add_folder(&path, found)?;
            }
        } else if Format::of_name(&path).is_some() {
            found.push(path);
        }
    }
    Ok(())
}

/// Whether the file has the name of a cache of Hugging Face `datasets`.
fn is_cache(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with("cache-") && name.ends_with(".arrow")
}

/// The entries of a folder that are not hidden; an empty path is the current folder.
fn list(folder: &Path) -> Result<Vec<PathBuf>> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let io = |source| Error::Io { path: folder.to_owned(), source };
    let hidden = |path: &PathBuf| {
        path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(['.', '_']))
    };
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(io)? {
        let path = entry.map_err(io)?.path();
        if !hidden(&path) {
            all.push(path);
        }
    }
    Ok(all)
}

/// Adds all files that a pattern matches. The `glob` crate's own walk skips folders that cannot be read;
/// here they are an error.
fn add_matches(pattern: &str, found: &mut Vec<PathBuf>) -> Result<()> {
    let invalid = |e| Error::usage(format!("{pattern:?} is not a valid pattern: {e}"));
    let mut folders = vec![PathBuf::from(if pattern.starts_with('/') { "/" } else { "" })];
    for part in pattern.split('/').filter(|part| !part.is_empty()) {
        let wanted = glob::Pattern::new(part).map_err(invalid)?;
        let mut next = Vec::new();
        for folder in folders {
            let is_folder = folder.as_os_str().is_empty() || folder.is_dir();
            if part == "**" {
                add_folders_below(folder, &mut next)?;
            } else if !has_wildcard(part) {
                next.extend(Some(folder.join(part)).filter(|path| path.exists()));
            } else if is_folder {
                for path in list(&folder)? {
                    let Some(name) = path.file_name() else { continue };
                    if wanted.matches(&name.to_string_lossy()) {
                        next.push(folder.join(name));
                    }
                }
            }
        }
        folders = next;
    }
    found.extend(folders.into_iter().filter(|path| path.is_file()));
    Ok(())
}

/// Adds a folder and all folders below it; links are not followed.
fn add_folders_below(folder: PathBuf, found: &mut Vec<PathBuf>) -> Result<()> {
    let mut todo = vec![folder];
    while let Some(folder) = todo.pop() {
        let inside = list(&folder)?.into_iter().filter(|path| path.is_dir() && !path.is_symlink());
        todo.extend(inside.filter_map(|path| Some(folder.join(path.file_name()?))));
        found.push(folder);
    }
    Ok(())
}
