//! Several files as one stream of rows, read ahead of the computing.
//!
//! Files come in sorted order: a folder stands for the files in it (and in its folders) whose names tell a
//! format, a pattern such as `part-*.npy` for those it matches. All must have the same dimension; element types
//! and formats may differ.
//!
//! A thread reads while the caller computes: three batches of a few megabytes go round, one in use, one
//! ready, one being filled. Mapped memory was tried instead: see `docs/design.md`.
//!
//! ```
//! use frosh_io::{Options, Vectors, for_values, rows};
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("a.csv");
//! # std::fs::write(&path, "1,2\n3,4\n5,6\n").unwrap();
//! # let path = path.to_str().unwrap().to_owned();
//! let vectors = Vectors::open(&[path], &Options::default())?;
//! assert_eq!(vectors.dim(), 2);
//! let mut batches = vectors.batches();
//! let mut seen = 0;
//! while let Some(batch) = batches.next()? {
//!     seen += for_values!(batch.values(), v => rows(v, batch.dim()).len());
//! }
//! assert_eq!(seen, 3);
//! # Ok::<(), frosh_io::Error>(())
//! ```

use crate::batch::{Batch, Kind, Values, rows};
use crate::error::{Error, Fault, Result};
use crate::for_values;
use crate::format::Format;
use crate::open::{self, Opened, Options, STDIN};
use crate::source::{Shape, Source};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex};

/// Bytes of values in a batch, about: large enough for few hand-overs, small enough for the cache.
const BATCH_BYTES: usize = 2 << 20;
/// Batches that go round.
const BATCHES: usize = 3;

/// One file of a stream.
#[derive(Clone, Debug)]
pub struct FileFacts {
    /// Where it is; `-` is standard input.
    pub path: PathBuf,
    /// Its format.
    pub format: Format,
    /// Whether it is packed by gzip or Zstandard.
    pub packed: bool,
    /// Whether it can be read more than once: not standard input, nor a pipe.
    pub again: bool,
    /// Its size in bytes, where it has one.
    pub bytes: Option<u64>,
    /// Values per row.
    pub dim: usize,
    /// Element type of its batches.
    pub kind: Kind,
    /// Rows, where its header or its size tells.
    pub rows: Option<u64>,
}

/// Files that are read as one.
pub struct Vectors {
    files: Vec<FileFacts>,
    options: Options,
    /// What can be opened only once (standard input, pipes) is kept from the look at its header.
    kept: Mutex<HashMap<PathBuf, Box<dyn Source>>>,
}

impl Vectors {
    /// Looks at all files: their formats, dimensions, rows.
    pub fn open(inputs: &[impl AsRef<OsStr>], options: &Options) -> Result<Self> {
        let paths = expand(inputs)?;
        let mut options = options.clone();
        let mut files: Vec<FileFacts> = Vec::with_capacity(paths.len());
        let mut kept = HashMap::new();
        find_libsvm_dim(&paths, &mut options)?;
        for path in paths {
            let Opened { format, packed, again, source } =
                open::open(&path, &options).map_err(|fault| fault.at(&path))?;
            let Shape { dim, kind, rows } = source.shape();
            if !again && kept.insert(path.clone(), source).is_some() {
                return Err(Error::Usage(format!("{} can be read only once", path.display())));
            }
            if let Some(first) = files.first().filter(|first| first.dim != dim) {
                let (first, expected) = (first.path.clone(), first.dim);
                return Err(Error::Dimension { first, expected, other: path, got: dim });
            }
            let bytes = std::fs::metadata(&path).ok().filter(std::fs::Metadata::is_file);
            let bytes = bytes.map(|m| m.len());
            files.push(FileFacts { path, format, packed, again, bytes, dim, kind, rows });
        }
        // Options that no file has a use for are a misunderstanding.
        let none = |used: &[Format]| !files.iter().any(|file| used.contains(&file.format));
        if options.column.is_some() && none(&[Format::Parquet, Format::Arrow]) {
            return Err(Error::Usage("--column is for Parquet and Arrow, and no file is".into()));
        }
        if options.dataset.is_some() && none(&[Format::Hdf5, Format::Npz]) {
            return Err(Error::Usage("--dataset is for HDF5 and .npz, and no file is".into()));
        }
        Ok(Self { files, options, kept: Mutex::new(kept) })
    }

    /// The files, in the order of the stream.
    pub fn files(&self) -> &[FileFacts] {
        &self.files
    }

    /// Values per row.
    pub fn dim(&self) -> usize {
        self.files[0].dim
    }

    /// Element type of the first file.
    pub fn kind(&self) -> Kind {
        self.files[0].kind
    }

    /// Rows in all, where every file tells; with bad rows left out, nobody knows before.
    pub fn rows(&self) -> Option<u64> {
        if self.options.skip_bad {
            return None;
        }
        self.files.iter().map(|file| file.rows).sum()
    }

    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    /// Reads all rows.
    pub fn batches(&self) -> Batches {
        self.batches_from(0)
    }

    /// Reads all rows but the first ones.
    pub fn batches_from(&self, row: u64) -> Batches {
        let kept = self.kept.lock().map(|mut kept| std::mem::take(&mut *kept)).unwrap_or_default();
        let (files, options) = (self.files.clone(), self.options.clone());
        let reader = Reader { files, options, kept, skip: row, left_out: 0 };
        Batches::start(reader)
    }
}

/// LIBSVM rows tell their dimension only together: the largest index of all files.
fn find_libsvm_dim(paths: &[PathBuf], options: &mut Options) -> Result<()> {
    if options.dim.is_some() {
        return Ok(());
    }
    let mut largest = None;
    for path in paths.iter().filter(|path| path.as_os_str() != STDIN) {
        let named = Format::of_name(path) == Some(Format::Libsvm);
        if options.format == Some(Format::Libsvm) || (options.format.is_none() && named) {
            let seen = open::look(path, options).map_err(|fault| fault.at(path))?;
            if !seen.again {
                let why = "LIBSVM text does not tell its dimension, and a stream is not read twice; pass --dim";
                return Err(Fault::from(why).at(path));
            }
            let index = crate::libsvm::largest_index(Box::new(seen.bytes));
            largest = largest.max(Some(index.map_err(|fault| fault.at(path))?));
        }
    }
    options.dim = largest;
    Ok(())
}

/// Turns arguments into files.
fn expand(inputs: &[impl AsRef<OsStr>]) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for input in inputs {
        let path = Path::new(input);
        // Names may be anything, patterns are text.
        let pattern = input.as_ref().to_str().filter(|text| text.contains(['*', '?', '[']));
        if input.as_ref() == STDIN || path.is_file() {
            paths.push(path.to_owned());
        } else if path.is_dir() {
            let before = paths.len();
            walk(path, &mut paths)?;
            if paths.len() == before {
                let why = "holds no file whose name tells a format: name the files themselves, with \
                           --format";
                return Err(Error::File { path: path.to_owned(), why: why.into() });
            }
            paths[before..].sort();
        } else if let Some(pattern) = pattern.filter(|_| !path.exists()) {
            let before = paths.len();
            matching(pattern, &mut paths)?;
            if paths.len() == before {
                return Err(Error::Usage(format!("no file matches {pattern:?}")));
            }
            paths[before..].sort();
        } else {
            // Missing, or something special such as a pipe: opening it will tell.
            paths.push(path.to_owned());
        }
    }
    if paths.is_empty() {
        return Err(Error::Usage("no input: name files, a folder, a pattern, or - ".into()));
    }
    if paths.iter().filter(|p| p.as_os_str() == STDIN).count() > 1 {
        return Err(Error::Usage("standard input (-) can be read only once".into()));
    }
    Ok(paths)
}

/// All files below a folder that are visible and have a name that tells a format.
fn walk(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for path in visible(folder)? {
        if path.is_dir() {
            // A link to a folder is not followed: it could lead round in circles.
            if !path.symlink_metadata().is_ok_and(|m| m.is_symlink()) {
                walk(&path, found)?;
            }
        } else if Format::of_name(&path).is_some() {
            found.push(path);
        }
    }
    Ok(())
}

/// What is in a folder, but for hidden things.
fn visible(folder: &Path) -> Result<Vec<PathBuf>> {
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

/// All files that a pattern matches. Goes from folder to folder itself, so that one which may not be read is an
/// error and no gap.
fn matching(pattern: &str, found: &mut Vec<PathBuf>) -> Result<()> {
    let bad = |e| Error::Usage(format!("{pattern:?} is no pattern of names: {e}"));
    let mut places = vec![PathBuf::from(if pattern.starts_with('/') { "/" } else { "" })];
    for part in pattern.split('/').filter(|part| !part.is_empty()) {
        let wanted = glob::Pattern::new(part).map_err(bad)?;
        let mut next = Vec::new();
        for place in places {
            let folder = if place.as_os_str().is_empty() { Path::new(".") } else { &place };
            if part == "**" {
                let mut deep = vec![place.clone()];
                while let Some(folder) = deep.pop() {
                    let listed =
                        if folder.as_os_str().is_empty() { Path::new(".") } else { &folder };
                    let inside =
                        visible(listed)?.into_iter().filter(|p| p.is_dir() && !p.is_symlink());
                    deep.extend(inside.filter_map(|p| Some(folder.join(p.file_name()?))));
                    next.push(folder);
                }
            } else if !part.contains(['*', '?', '[']) {
                next.extend(Some(place.join(part)).filter(|path| path.exists()));
            } else if folder.is_dir() {
                for path in visible(folder)? {
                    let Some(name) = path.file_name() else { continue };
                    if wanted.matches(&name.to_string_lossy()) {
                        next.push(place.join(name));
                    }
                }
            }
        }
        places = next;
    }
    found.extend(places.into_iter().filter(|path| path.is_file()));
    Ok(())
}

/// What the reading thread does.
struct Reader {
    files: Vec<FileFacts>,
    options: Options,
    kept: HashMap<PathBuf, Box<dyn Source>>,
    /// Rows still to be passed over.
    skip: u64,
    left_out: u64,
}

impl Reader {
    /// Reads everything, or until nobody wants more.
    fn run(mut self, empty: &Receiver<Batch>, full: &SyncSender<Message>) {
        for file in std::mem::take(&mut self.files) {
            match self.read_file(&file, empty, full) {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    // The caller may have gone; then nobody is there to be told.
                    let _ = full.send(Message::Error(error));
                    return;
                }
            }
        }
        let _ = full.send(Message::End { left_out: self.left_out });
    }

    /// False when nobody wants more.
    fn read_file(
        &mut self,
        file: &FileFacts,
        empty: &Receiver<Batch>,
        full: &SyncSender<Message>,
    ) -> Result<bool> {
        if let Some(rows) = file.rows.filter(|rows| !self.options.skip_bad && *rows <= self.skip) {
            self.skip -= rows;
            return Ok(true);
        }
        let path: Arc<Path> = file.path.clone().into();
        let fault = |fault: Fault| fault.at(&path);
        let mut source = match self.kept.remove(&file.path) {
            Some(source) => source,
            None if !file.again => return Err(fault("can be read only once".into())),
            None => open::open(&file.path, &self.options).map_err(fault)?.source,
        };
        let shape = source.shape();
        if (shape.dim, shape.kind) != (file.dim, file.kind) {
            return Err(fault("changed while it was being read".into()));
        }
        let mut next = 0u64;
        if file.rows.is_some() && !self.options.skip_bad {
            source.skip(self.skip).map_err(fault)?;
            next = std::mem::take(&mut self.skip);
        }
        let most = (BATCH_BYTES / (shape.dim * shape.kind.bytes())).max(1);
        loop {
            let Ok(mut batch) = empty.recv() else { return Ok(false) };
            batch.values.turn_into(shape.kind);
            batch.dim = shape.dim;
            batch.path = Arc::clone(&path);
            batch.first = next;
            let limit = if self.skip > 0 { most.min(self.skip as usize) } else { most };
            let got = source.read(limit, &mut batch.values).map_err(fault)?;
            if got == 0 {
                self.left_out += source.left_out();
                // The batch was not needed: it is kept for the next file.
                return Ok(full.send(Message::Unused(batch)).is_ok());
            }
            next += got as u64;
            if self.options.skip_bad {
                self.left_out += leave_out_bad(&mut batch.values, shape.dim);
            }
            if self.skip > 0 {
                self.skip -= batch.len() as u64;
                batch.values.clear(shape.kind);
            }
            let message =
                if batch.is_empty() { Message::Unused(batch) } else { Message::Batch(batch) };
            if full.send(message).is_err() {
                return Ok(false);
            }
        }
    }
}

/// Removes rows that the library would refuse; returns how many.
fn leave_out_bad(values: &mut Values, dim: usize) -> u64 {
    fn each<T: frosh::Element>(values: &mut Vec<T>, dim: usize) -> u64 {
        let (mut kept, mut at) = (0, 0);
        let all = values.len() / dim;
        while at < all {
            let good = match rows(&values[at * dim..], dim).check() {
                Ok(()) => all - at,
                Err(frosh::Error::NotFinite { row, .. } | frosh::Error::TooLarge { row, .. }) => {
                    row
                }
                // The check has no other answer.
                Err(_) => all - at,
            };
            values.copy_within(at * dim..(at + good) * dim, kept * dim);
            kept += good;
            at += good + 1;
        }
        values.truncate(kept * dim);
        (all - kept) as u64
    }
    for_values!(values, v => each(v, dim))
}

enum Message {
    Batch(Batch),
    /// A batch to be given back at once.
    Unused(Batch),
    Error(Error),
    End {
        left_out: u64,
    },
}

/// Rows as they are read. Dropping it ends the reading.
pub struct Batches {
    /// None after the last message.
    full: Option<Receiver<Message>>,
    empty: Sender<Batch>,
    current: Option<Batch>,
    left_out: u64,
    /// The first file: for messages.
    path: PathBuf,
}

impl Batches {
    fn start(reader: Reader) -> Self {
        let (give, empty) = channel();
        // Room for every batch and the last message, so that the reader never waits for us to drop.
        let (send, full) = sync_channel(BATCHES + 1);
        let (kind, dim) = (reader.files[0].kind, reader.files[0].dim);
        let path = reader.files[0].path.clone();
        for _ in 0..BATCHES {
            // The receiver is in our hands, so it takes them.
            let _ = give.send(Batch::new(kind, dim, Arc::from(Path::new(""))));
        }
        // Never joined: it ends when its channels do, and may be waiting for standard input. Where no
        // thread can be had, the first call for a batch says so.
        let _ = std::thread::Builder::new()
            .name("frosh-read".into())
            .spawn(move || reader.run(&empty, &send));
        Self { full: Some(full), empty: give, current: None, left_out: 0, path }
    }

    /// The next rows; `None` at the end. Whoever stops asking stops the reading.
    #[allow(clippy::should_implement_trait)] // lends the batch, which an iterator cannot
    pub fn next(&mut self) -> Result<Option<&Batch>> {
        if let Some(batch) = self.current.take() {
            // After the last batch nobody takes it back.
            let _ = self.empty.send(batch);
        }
        while let Some(full) = &self.full {
            match full.recv() {
                Ok(Message::Batch(batch)) => return Ok(Some(self.current.insert(batch))),
                Ok(Message::Unused(batch)) => {
                    let _ = self.empty.send(batch);
                }
                Ok(Message::Error(error)) => {
                    self.full = None;
                    return Err(error);
                }
                Ok(Message::End { left_out }) => {
                    self.left_out = left_out;
                    self.full = None;
                }
                // Without a last message the thread was never there, or died: not an end.
                Err(_) => {
                    self.full = None;
                    let why = "the thread that reads it and what follows stopped unexpectedly";
                    return Err(Fault::from(why).at(&self.path));
                }
            }
        }
        Ok(None)
    }

    /// Rows left out because they could not be used; known at the end.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }
}
