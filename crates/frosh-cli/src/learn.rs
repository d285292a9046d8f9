//! Learning from files: what `train` and `sketch` share.

mod reading;

use crate::args::{Common, Fitting, Learning, Reading, check_distinct, same_place};
use crate::checkpoint::Checkpoint;
use crate::output::count;
use crate::progress::Progress;
use crate::signals::{self, Interrupted};
use crate::skipping::{LeftOut, Skipping};
use anyhow::{Result, bail};
use frosh::{AtomicFile, Config, Pool, Sketch, Sketcher};
use frosh_io::Vectors;
use reading::Input;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::fmt::{self, Display, Formatter};
use std::path::Path;
use std::str::FromStr;
use std::time::Instant;

/// What came of it.
pub(crate) struct Learned {
    /// The sketch of all rows.
    pub(crate) result: Sketch,
    /// Rows of the sketch, as the settings have them.
    pub(crate) sketch_rows: usize,
    /// To be removed once the result is written.
    pub(crate) checkpoint: Option<Checkpoint>,
    /// Rows that an earlier run had done.
    pub(crate) resumed_at: u64,
    /// Rows left out as bad.
    pub(crate) left_out: LeftOut,
    /// Seconds spent waiting for data.
    pub(crate) read: f64,
    /// Seconds spent learning.
    pub(crate) sketch: f64,
    pub(crate) bytes_per_row: usize,
    /// Threads that it was learned on.
    pub(crate) threads: usize,
    /// Whether reading was ended by an interrupt.
    pub(crate) interrupted: bool,
}

impl Learned {
    /// To be called when the result is written: an interrupt is not a success.
    pub(crate) fn end(&self, output: &Path) -> Result<()> {
        if self.interrupted {
            let rows = count(self.result.rows());
            bail!(Interrupted(format!(
                "interrupted: {} was learned from the {rows} rows read until then",
                output.display()
            )));
        }
        Ok(())
    }
}

/// The number of a worker, which selects its randomness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Worker {
    Number(u64),
    /// A hash of the first row.
    Auto,
}

impl Worker {
    /// The setting as a checkpoint notes it.
    fn setting(self) -> Value {
        match self {
            Self::Number(number) => json!(number),
            Self::Auto => json!("auto"),
        }
    }
}

impl FromStr for Worker {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            _ => text
                .parse()
                .map(Self::Number)
                .map_err(|_| "expected a whole number from 0, or auto"),
        }
    }
}

impl Display for Worker {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Auto => f.write_str("auto"),
        }
    }
}

/// Something to be done after every so many rows.
pub(crate) type Refresh<'a> = Option<(u64, &'a dyn Fn(&Sketcher) -> Result<()>)>;

/// Reads the data once and learns from it. What would be refused at the end is refused at the start.
#[allow(clippy::too_many_arguments)] // each is a group of options that two verbs share
pub(crate) fn learn(
    data: &[OsString],
    output: &Path,
    reading: &Reading,
    skipping: &Skipping,
    learning: &Learning,
    worker: Worker,
    clock: u64,
    common: &Common,
    fitting: Option<&Fitting>,
    refresh: Refresh<'_>,
) -> Result<Learned> {
    let vectors = crate::kinds::vectors(data, &reading.options(skipping.skip_bad))?;
    check_distinct(output, vectors.files().iter().map(|file| &*file.path))?;
    if let Some(checkpoint) = &learning.checkpoint {
        check_distinct(checkpoint, vectors.files().iter().map(|file| &*file.path))?;
        if same_place(checkpoint, output) {
            bail!("--checkpoint and --output name the same file: give them different names");
        }
    }
    let inputs = vectors.files().iter().map(|file| &*file.path);
    let others = inputs.chain([output]).chain(learning.checkpoint.as_deref());
    let mut skipped = skipping.start(others)?;
    // What runs that were killed left behind. Their checkpoint and their output are this run's to replace.
    for path in learning.checkpoint.iter().map(|path| &**path).chain([output]) {
        AtomicFile::remove_leftovers(path);
    }
    let config = config(&vectors, learning, fitting, worker).clock(clock);
    // Rows that are left out change the numbers of those after them, and a refresh is due after so many rows in order. A
    // stream of one run has nothing to share among threads.
    let one_run = config.resolved_run_rows().ok().filter(|rows| *rows > 0).unwrap_or(u64::MAX);
    let ranges = vectors.stored_rows().filter(|rows| {
        vectors.cuttable() && !skipping.skip_bad && refresh.is_none() && *rows > one_run
    });
    let threads = threads(common, ranges.is_some());
    let pool = Pool::new(threads)?;
    if let Some(fitting) = fitting {
        config.resolved_block_rows()?;
        match fitting.bytes {
            Some(bytes) => config.check_quantizer(bytes)?,
            None => config.check_hasher(fitting.bits, fitting.rotation)?,
        }
    }
    let reservoir = config.requested_reservoir_rows();
    let mut sketcher = pool.install(|| Sketcher::new(config))?;
    let mut settings = json!({
        "method": learning.method.as_str(),
        "metric": learning.metric.as_str(),
        "sketch_rows": sketcher.sketch_rows(),
        "block_rows": sketcher.block_rows(),
        "run_rows": sketcher.run_rows(),
        "reservoir": reservoir,
        "seed": learning.seed,
        "worker": worker.setting(),
        "skip_bad": skipping.skip_bad,
        "dim": vectors.dim(),
        "dataset": reading.dataset,
        "column": reading.column_setting(),
    });
    if let Some(rows) = learning.half_life {
        settings["half_life"] = json!(rows);
        settings["clock"] = json!(clock);
    }
    let mut checkpoint = match &learning.checkpoint {
        Some(path) => {
            let signs = |f: &&Fitting| learning.sketch_rows.is_none() && f.bytes.is_none();
            let bits = fitting.filter(signs).map(|f| f.bits);
            Some(Checkpoint::new(path, learning.checkpoint_every, settings, &vectors, bits)?)
        }
        None => None,
    };
    if let Some(resumed) =
        pool.install(|| checkpoint.as_ref().map_or(Ok(None), Checkpoint::load))?
    {
        // The note of a run without a half-life does not say so.
        if resumed.half_life() != learning.half_life {
            let of = |rows: Option<u64>| rows.map_or("none".into(), count);
            bail!(
                "{}: is a checkpoint of another run: its half-life is {}, and this run's is {}. Give the arguments of \
                 that run, or remove the file to begin anew",
                learning
                    .checkpoint
                    .iter()
                    .map(|path| path.display().to_string())
                    .collect::<String>(),
                of(resumed.half_life()),
                of(learning.half_life)
            );
        }
        sketcher = resumed;
    }
    let resumed_at = sketcher.rows();
    let bytes_per_row = vectors.dim() * vectors.kind().bytes();
    let mut progress = Progress::new("learning", vectors.rows(), bytes_per_row, common.quiet);
    progress.start_at(resumed_at);
    let interrupt = signals::finish_on_interrupt();
    let mut input = Input {
        vectors: &vectors,
        checkpoint: &mut checkpoint,
        skipped: &mut skipped,
        progress,
        interrupt: &interrupt,
    };
    let (read, sketch) = match ranges.filter(|_| sketcher.run_rows() > 0) {
        Some(end) if end > resumed_at => input.learn_ranges(&mut sketcher, end)?,
        _ => input.learn_in_order(&mut sketcher, refresh)?,
    };
    drop(input);
    let interrupted = interrupt.came();
    // From here on an interrupt stops the program at once.
    drop(interrupt);
    if interrupted && let Some(checkpoint) = &mut checkpoint {
        checkpoint.save(&mut sketcher)?;
        let rows = count(sketcher.rows());
        bail!(Interrupted(format!(
            "interrupted after {rows} rows: the state is kept in {}, and the same command goes on from there",
            learning.checkpoint.iter().map(|path| path.display().to_string()).collect::<String>()
        )));
    }
    if interrupted && sketcher.rows() == 0 {
        bail!(Interrupted(
            "interrupted before the first rows were learned: nothing is written".into()
        ));
    }
    if sketcher.rows() == 0 {
        bail!(
            "{}: there are no rows to learn from: the data is empty, or every row was left out",
            vectors.files()[0].path.display()
        );
    }
    let left_out = skipped.finish()?;
    let (clock, sketch_rows) = (Instant::now(), sketcher.sketch_rows());
    // Not `sketch`, which would copy the sample.
    let result = sketcher.finish();
    let sketch = sketch + clock.elapsed().as_secs_f64();
    Ok(Learned {
        result,
        sketch_rows,
        checkpoint,
        resumed_at,
        left_out,
        read,
        sketch,
        bytes_per_row,
        threads,
        interrupted,
    })
}

/// Threads to learn on: by default one for every core, but the one that reads if the rows are read in order.
fn threads(common: &Common, ranges: bool) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    match common.threads {
        0 if ranges => cores,
        0 => cores.saturating_sub(1).max(1),
        threads => threads,
    }
}

fn config(
    vectors: &Vectors,
    learning: &Learning,
    fitting: Option<&Fitting>,
    worker: Worker,
) -> Config {
    let mut config = Config::new(vectors.dim())
        .method(learning.method)
        .metric(learning.metric)
        .seed(learning.seed);
    if let Some(rows) = learning.half_life {
        config = config.half_life(rows);
    }
    if let Some(rows) = learning.run_rows {
        config = config.run_rows(rows);
    }
    config = match worker {
        Worker::Number(number) => config.worker(number),
        Worker::Auto => config.worker_from_rows(),
    };
    // The paper's l: twice the bits. A sketch that does not know its bits yet is made for 128.
    config = match fitting {
        Some(Fitting { bytes: Some(bytes), .. }) => config.for_quantizer(*bytes),
        Some(Fitting { bits, .. }) => config.sketch_rows(2 * (*bits).max(1)),
        None => config,
    };
    if let Some(rows) = learning.sketch_rows {
        config = config.sketch_rows(rows);
    }
    if let Some(rows) = learning.reservoir {
        config = config.reservoir_rows(rows);
    }
    if let Some(rows) = learning.block_rows {
        config = config.block_rows(rows);
    }
    config
}
