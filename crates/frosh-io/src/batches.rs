//! Reading ahead: a thread reads batches while the caller computes.
//!
//! Three batches of a few megabytes circulate: one in use, one ready, one being filled. Mapped memory was
//! tried instead: see `docs/design.md`.

use crate::batch::{Batch, Values, add_range, for_values};
use crate::error::{Error, Fault, Result};
use crate::ids::IdSink;
use crate::open::{self, Options};
use crate::source::Source;
use crate::vectors::FileFacts;
use frosh::{Element, Rows};
use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::time::Duration;

/// Bytes of values in a batch: large enough that handing over costs little, small enough for the cache.
const BATCH_BYTES: usize = 2 << 20;
/// Number of batches that circulate.
const BATCHES: usize = 3;
/// Time between two questions of a waiting caller whether to stop.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// What the reading thread reads.
pub(crate) struct Reader {
    pub(crate) files: Vec<FileFacts>,
    pub(crate) options: Options,
    /// Open sources of files that cannot be opened a second time.
    pub(crate) opened: HashMap<PathBuf, Box<dyn Source>>,
    /// Rows that are still to be skipped.
    pub(crate) skip: u64,
}

/// What the reading thread sends.
enum Message {
    Batch(Batch),
    /// An empty batch, to be returned at once.
    Unused(Batch),
    Error(Error),
    End,
}

/// The reading thread: its job and its channels.
struct ReadingThread {
    reader: Reader,
    /// Batches to be filled.
    empty: Receiver<Batch>,
    full: SyncSender<Message>,
    /// Number in the stream of the first row of the current file.
    file_start: u64,
    /// Takes the ids of all files, if an id column was chosen.
    ids: IdSink,
}

impl ReadingThread {
    /// Reads all files, or until the receiver is dropped.
    fn run(mut self) {
        for file in std::mem::take(&mut self.reader.files) {
            match self.read_file(&file) {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    // If the receiver was dropped, nobody needs the error.
                    let _ = self.full.send(Message::Error(error));
                    return;
                }
            }
        }
        let _ = self.full.send(Message::End);
    }

    /// Reads one file; false if the receiver was dropped.
    fn read_file(&mut self, file: &FileFacts) -> Result<bool> {
        let skip_bad = self.reader.options.skip_bad;
        if let Some(rows) = file.rows.filter(|rows| !skip_bad && *rows <= self.reader.skip) {
            self.reader.skip -= rows;
            self.file_start += rows;
            return Ok(true);
        }
        let path: Arc<Path> = file.path.clone().into();
        let fault = |fault: Fault| fault.at(&path);
        let mut source = match self.reader.opened.remove(&file.path) {
            Some(source) => source,
            None if !file.rereadable => return Err(fault("can be read only once".into())),
            None => open::open(&file.path, &self.reader.options).map_err(fault)?.source,
        };
        let shape = source.shape();
        if (shape.dim, shape.kind) != (file.dim, file.kind) {
            return Err(fault("changed while it was being read".into()));
        }
        let mut next_row = 0u64;
        // With bad rows left out, the rows to skip are counted among the good ones, below.
        if file.rows.is_some() && !skip_bad {
            source.skip(self.reader.skip).map_err(fault)?;
            next_row = std::mem::take(&mut self.reader.skip);
        }
        let most = (BATCH_BYTES / (shape.dim * shape.kind.bytes())).max(1);
        loop {
            let Ok(mut batch) = self.empty.recv() else { return Ok(false) };
            batch.values.set_kind(shape.kind);
            batch.dim = shape.dim;
            batch.path = Arc::clone(&path);
            batch.first = next_row;
            let skip = self.reader.skip;
            let limit = if skip > 0 { most.min(skip as usize) } else { most };
            let got = source.read(limit, &mut batch.values).map_err(fault)?;
            batch.file_start = self.file_start;
            batch.left_out = source.take_left_out();
            next_row += got as u64 + batch.left_out_rows();
            if got == 0 {
                batch.values.clear(shape.kind);
                self.file_start += next_row;
                // The batch comes back for the next file.
                return Ok(self.full.send(Message::Unused(batch)).is_ok());
            }
            if skip_bad {
                let bad = bad_rows(&batch.values, shape.dim);
                if !bad.is_empty() {
                    batch = batch.without(bad);
                }
            }
            if skip > 0 {
                self.reader.skip -= batch.len() as u64;
                batch.values.clear(shape.kind);
            }
            batch.ids = None;
            if let Some(ids) = source.ids().filter(|_| !batch.is_empty()) {
                // Only now, so that ids of rows that are left out are not looked at.
                for (rows, number) in batch.runs() {
                    let row = number - batch.file_start;
                    if ids.read(row, rows.len(), &mut self.ids).map_err(fault)? != rows.len() {
                        return Err(fault("the column of ids ends before the vectors".into()));
                    }
                }
                batch.ids = Some(self.ids.take());
            }
            let message =
                if batch.is_empty() { Message::Unused(batch) } else { Message::Batch(batch) };
            if self.full.send(message).is_err() {
                return Ok(false);
            }
        }
    }
}

/// Rows that frosh would refuse, ascending.
pub(crate) fn bad_rows(values: &Values, dim: usize) -> Vec<usize> {
    fn of<T: Element>(values: &[T], dim: usize) -> Vec<usize> {
        let mut bad = Vec::new();
        let mut next = 0;
        // Checking stops at the first bad row, and goes on behind it.
        while let Ok(rows) = Rows::new(&values[next * dim..], dim)
            && let Err(frosh::Error::NotFinite { row, .. } | frosh::Error::TooLarge { row, .. }) =
                rows.check()
        {
            bad.push(next + row);
            next += row + 1;
        }
        bad
    }
    for_values!(values, v => of(v, dim))
}

/// The batches of a stream, in order. Dropping it ends the reading.
pub struct Batches {
    /// None after the last message.
    full: Option<Receiver<Message>>,
    empty: Sender<Batch>,
    current: Option<Batch>,
    left_out: u64,
    /// Numbers of rows left out that were not taken yet.
    left_out_rows: Vec<Range<u64>>,
    /// The first file, for error messages.
    path: PathBuf,
}

impl Batches {
    pub(crate) fn start(reader: Reader) -> Self {
        let (return_batch, empty) = channel();
        // Room for every batch and the last message, so that the thread never waits to send.
        let (send, full) = sync_channel(BATCHES + 1);
        let (kind, dim) = (reader.files[0].kind, reader.files[0].dim);
        let path = reader.files[0].path.clone();
        for _ in 0..BATCHES {
            // Cannot fail: the receiver is in this function.
            let _ = return_batch.send(Batch::new(kind, dim, Arc::from(Path::new(""))));
        }
        let ids = IdSink::new(reader.options.id_rule, reader.options.id_column.as_deref());
        let thread = ReadingThread { reader, empty, full: send, file_start: 0, ids };
        // The thread is not joined: it ends when its channels are closed, and until then it may be waiting
        // for standard input. If no thread can be started, the first call of `next` says so.
        let _ = std::thread::Builder::new().name("frosh-read".into()).spawn(move || thread.run());
        let (full, current) = (Some(full), None);
        Self { full, empty: return_batch, current, left_out: 0, left_out_rows: Vec::new(), path }
    }

    /// The next rows; `None` at the end and after an error.
    ///
    /// This is not an `Iterator`: the batch is borrowed, so that its memory can be filled again.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<&Batch>> {
        self.next_unless(|| false)
    }

    /// As [`Batches::next`], but `None` also when `stop` is true. It is asked before waiting, and about twenty times a
    /// second while waiting: a stream may have nothing to read for a long time.
    pub fn next_unless(&mut self, stop: impl Fn() -> bool) -> Result<Option<&Batch>> {
        if let Some(batch) = self.current.take() {
            // Fails after the last batch, when the thread has ended.
            let _ = self.empty.send(batch);
        }
        while let Some(full) = &self.full {
            if stop() {
                break;
            }
            match full.recv_timeout(ASK_EVERY) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Message::Batch(batch)) => {
                    self.note_left_out(&batch);
                    return Ok(Some(self.current.insert(batch)));
                }
                Ok(Message::Unused(batch)) => {
                    self.note_left_out(&batch);
                    let _ = self.empty.send(batch);
                }
                Ok(Message::Error(error)) => {
                    self.full = None;
                    return Err(error);
                }
                Ok(Message::End) => self.full = None,
                // Without a last message the thread never started, or it panicked.
                Err(RecvTimeoutError::Disconnected) => {
                    self.full = None;
                    let why = "the thread that reads it and what follows stopped unexpectedly";
                    return Err(Fault::from(why).at(&self.path));
                }
            }
        }
        Ok(None)
    }

    fn note_left_out(&mut self, batch: &Batch) {
        self.left_out += batch.left_out_rows();
        let start = batch.file_start;
        for rows in &batch.left_out {
            add_range(&mut self.left_out_rows, start + rows.start..start + rows.end);
        }
    }

    /// Number of rows left out so far because they cannot be used (see [`Options::skip_bad`]). After the end, all.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// The numbers, in the stream and ascending, of the rows left out since the last call. Those between two batches are
    /// known with the second, and those after the last batch at the end. Until they are taken, each range costs 16 bytes.
    pub fn take_left_out(&mut self) -> Vec<Range<u64>> {
        std::mem::take(&mut self.left_out_rows)
    }
}
