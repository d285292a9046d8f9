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
use crate::open::{self, Options, STDIN};
use crate::source::{Shape, Source};
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
    /// Standard input can be opened only once, so it is kept from the look at its header.
    stdin: Mutex<Option<Box<dyn Source>>>,
}

impl Vectors {
    /// Looks at all files: their formats, dimensions, rows.
    pub fn open(inputs: &[String], options: &Options) -> Result<Self> {
        let paths = expand(inputs)?;
        let mut options = options.clone();
        let mut files: Vec<FileFacts> = Vec::with_capacity(paths.len());
        let mut stdin = None;
        find_libsvm_dim(&paths, &mut options)?;
        for path in paths {
            let fault = |fault: Fault| fault.at(&path);
            let is_stdin = path.as_os_str() == STDIN;
            // Standard input is looked at only by opening it.
            let (format, packed) = if is_stdin {
                (options.format.unwrap_or(Format::Raw), false)
            } else {
                let seen = open::look(&path, &options).map_err(fault)?;
                (seen.format, seen.packed)
            };
            let source = open::open(&path, &options).map_err(fault)?;
            let Shape { dim, kind, rows } = source.shape();
            if is_stdin {
                stdin = Some(source);
            }
            if let Some(first) = files.first().filter(|first| first.dim != dim) {
                let (first, expected) = (first.path.clone(), first.dim);
                return Err(Error::Dimension { first, expected, other: path, got: dim });
            }
            let bytes = std::fs::metadata(&path).ok().filter(std::fs::Metadata::is_file);
            let bytes = bytes.map(|m| m.len());
            files.push(FileFacts { path, format, packed, bytes, dim, kind, rows });
        }
        Ok(Self { files, options, stdin: Mutex::new(stdin) })
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
        let stdin = self.stdin.lock().map_or(None, |mut stdin| stdin.take());
        let (files, options) = (self.files.clone(), self.options.clone());
        let reader = Reader { files, options, stdin, skip: row, left_out: 0 };
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
            let index = crate::libsvm::largest_index(Box::new(seen.bytes));
            largest = largest.max(Some(index.map_err(|fault| fault.at(path))?));
        }
    }
    options.dim = largest;
    Ok(())
}

/// Turns arguments into files.
fn expand(inputs: &[String]) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for input in inputs {
        let path = Path::new(input);
        if input == STDIN || path.is_file() {
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
        } else if input.contains(['*', '?', '[']) && !path.exists() {
            let hidden =
                glob::MatchOptions { require_literal_leading_dot: true, ..Default::default() };
            let matches = glob::glob_with(input, hidden)
                .map_err(|e| Error::Usage(format!("{input:?} is no pattern of names: {e}")))?;
            let before = paths.len();
            paths.extend(matches.filter_map(std::result::Result::ok).filter(|p| p.is_file()));
            if paths.len() == before {
                return Err(Error::Usage(format!("no file matches {input:?}")));
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
    let io = |source| Error::Io { path: folder.to_owned(), source };
    for entry in std::fs::read_dir(folder).map_err(io)? {
        let path = entry.map_err(io)?.path();
        let hidden = path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(['.', '_']));
        // A link to a folder is not followed: it could lead round in circles.
        let link = path.symlink_metadata().is_ok_and(|m| m.is_symlink());
        if hidden {
            continue;
        } else if path.is_dir() {
            if !link {
                walk(&path, found)?;
            }
        } else if Format::of_name(&path).is_some() {
            found.push(path);
        }
    }
    Ok(())
}

/// What the reading thread does.
struct Reader {
    files: Vec<FileFacts>,
    options: Options,
    stdin: Option<Box<dyn Source>>,
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
        let stdin = if file.path.as_os_str() == STDIN { self.stdin.take() } else { None };
        let mut source = match stdin {
            Some(source) => source,
            None => open::open(&file.path, &self.options).map_err(fault)?,
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
}

impl Batches {
    fn start(reader: Reader) -> Self {
        let (give, empty) = channel();
        // Room for every batch and the last message, so that the reader never waits for us to drop.
        let (send, full) = sync_channel(BATCHES + 1);
        let (kind, dim) = (reader.files[0].kind, reader.files[0].dim);
        for _ in 0..BATCHES {
            // The receiver is in our hands, so it takes them.
            let _ = give.send(Batch::new(kind, dim, Arc::from(Path::new(""))));
        }
        // Never joined: it ends when its channels do, and may be waiting for standard input. Where no
        // thread can be had, the first call for a batch says so.
        let _ = std::thread::Builder::new()
            .name("frosh-read".into())
            .spawn(move || reader.run(&empty, &send));
        Self { full: Some(full), empty: give, current: None, left_out: 0 }
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
                    return Err(Error::Usage("the reading thread stopped unexpectedly".into()));
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
