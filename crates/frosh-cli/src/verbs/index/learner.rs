//! `frosh index add --learn`: an index as the end of an endless pipe. It learns from the rows that it adds, commits them
//! every so often, and makes new versions of the model by itself.

use crate::output::{complain, count, print_json};
use crate::verbs::drift::{settings_like, share};
use anyhow::{Result, bail};
use clap::Args;
use frosh::{Drift, IndexWriter, NewRows, Sketcher};
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

/// Longest time that rows wait for their commit.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// Drift is measured when the stream has grown by this share since the last time, or by this share of the half-life.
const GROWTH: f64 = 0.1;
/// Sampled rows that a measurement needs.
const MIN_SAMPLE: usize = 256;
/// Parts from which on they are made one, and versions from which on the worst are folded.
const MOST_PARTS: usize = 64;
const MOST_VERSIONS: usize = 10;

/// How an index learns from the rows that are added.
#[derive(Args, Clone)]
#[command(next_help_heading = "Learning")]
pub(super) struct LearnArgs {
    /// Learn from the rows: keep a sketch in the index, and commit rows and sketch together every --commit-every rows. For
    /// streams that do not end
    #[arg(long)]
    pub(super) learn: bool,
    /// Make new versions of the model: auto measures whenever the stream has grown by a tenth (or by a tenth of the
    /// half-life), and makes one if the gap is above --gap
    #[arg(long, value_name = "WHEN", requires = "learn", default_value = "never",
          value_parser = clap::builder::PossibleValuesParser::new(["auto", "never"]))]
    refresh: String,
    /// The gap in MAP from which on a new version is made
    #[arg(long, value_name = "SHARE", requires = "learn", default_value_t = Drift::DEFAULT_GAP,
          value_parser = share)]
    gap: f64,
    /// Rows of a commit. They come earlier if the stream pauses for half a minute
    #[arg(long, value_name = "N", requires = "learn", default_value_t = 65_536,
          value_parser = clap::value_parser!(u64).range(1..))]
    commit_every: u64,
    /// Make older rows count less in the sketch: a row that is N rows old counts half. New versions then follow recent
    /// rows. It is set when the sketch begins
    #[arg(long, value_name = "N", requires = "learn",
          value_parser = clap::value_parser!(u64).range(1..=1 << 62))]
    half_life: Option<u64>,
    /// The data begins with the first row of the stream: pass over the rows that were added before
    #[arg(long, requires = "learn")]
    pub(super) resume: bool,
    /// Without stored vectors: rows that came since the last version keep their codes and their model
    #[arg(long, requires = "learn")]
    keep_codes: bool,
}

/// What is kept beside the sketch.
#[derive(Clone, Copy)]
struct Note {
    /// Rows of the stream that were added.
    taken: u64,
    /// Rows that were learned when drift was last measured.
    measured_at: u64,
}

impl Note {
    fn of(sketcher: &Sketcher) -> Option<Self> {
        let note: Value = serde_json::from_str(sketcher.note()).ok()?;
        let number = |name: &str| note[name].as_u64();
        Some(Self { taken: number("taken")?, measured_at: number("measured_at")? })
    }

    fn text(self) -> String {
        json!({"taken": self.taken, "measured_at": self.measured_at}).to_string()
    }
}

/// Learns, commits and refreshes.
pub(super) struct Learner<'a> {
    args: &'a LearnArgs,
    pub(super) sketcher: Sketcher,
    note: Note,
    /// Rows since the last commit.
    waiting: u64,
    last: Instant,
    json: bool,
    quiet: bool,
    /// Versions that were made.
    pub(super) versions: u64,
    pub(super) replaced: u64,
}

impl<'a> Learner<'a> {
    /// Goes on from the sketch of the index, or begins one with the rows that the index stores.
    pub(super) fn start(
        args: &'a LearnArgs,
        writer: &IndexWriter,
        path: &Path,
        json: bool,
        quiet: bool,
    ) -> Result<Option<Self>> {
        if !args.learn {
            return Ok(None);
        }
        let index = writer.index();
        if args.refresh == "auto" && index.vectors().is_none() && !args.keep_codes {
            bail!(
                "{} stores no vectors, so rows cannot be encoded again: build it with --vectors, or give --keep-codes to let \
                 rows keep their codes",
                path.display()
            );
        }
        let sketcher = match index.sketcher()? {
            Some(sketcher) if args.half_life.is_some_and(|h| sketcher.half_life() != Some(h)) => {
                let of = sketcher.half_life().map_or("none".into(), count);
                bail!(
                    "{}: the half-life of its sketch is {of}, and cannot be changed: leave out --half-life",
                    path.display()
                );
            }
            Some(sketcher) => sketcher,
            None => {
                let mut config = settings_like(index.model());
                if let Some(rows) = args.half_life {
                    config = config.half_life(rows);
                }
                let mut sketcher = Sketcher::new(config)?;
                index.learn_stored(&mut sketcher)?;
                sketcher
            }
        };
        let begun = || Note { taken: 0, measured_at: sketcher.rows() };
        let note = Note::of(&sketcher).unwrap_or_else(begun);
        let (waiting, last) = (0, Instant::now());
        let (versions, replaced) = (0, 0);
        Ok(Some(Self { args, sketcher, note, waiting, last, json, quiet, versions, replaced }))
    }

    /// Rows of the stream that were added before.
    pub(super) fn taken(&self) -> u64 {
        self.note.taken
    }

    /// Rows until the next commit. Commits are at multiples of their size, so that a stream that was stopped and goes
    /// on has the same commits.
    pub(super) fn room(&self) -> usize {
        let every = self.args.commit_every;
        usize::try_from(every - self.note.taken % every).unwrap_or(usize::MAX)
    }

    /// Notes that rows were pushed and learned.
    pub(super) fn add(&mut self, rows: usize) {
        self.note.taken += rows as u64;
        self.waiting += rows as u64;
    }

    /// Whether rows wait for their commit.
    pub(super) fn has_rows(&self) -> bool {
        self.waiting > 0
    }

    /// Whether a commit is due after the last rows.
    pub(super) fn is_full(&self) -> bool {
        self.waiting > 0 && self.note.taken.is_multiple_of(self.args.commit_every)
    }

    /// Whether rows have waited for long.
    pub(super) fn is_late(&self) -> bool {
        self.waiting > 0 && self.last.elapsed() > LONGEST_WAIT
    }

    /// Commits the rows with the sketch.
    pub(super) fn commit(&mut self, new: NewRows<'_>) -> frosh::Result<()> {
        self.sketcher.set_note(self.note.text());
        self.replaced += new.learned(&self.sketcher).commit()?;
        (self.waiting, self.last) = (0, Instant::now());
        Ok(())
    }

    /// What follows a commit: a new version if one is due, and one part of many. Reports it.
    pub(super) fn tend(&mut self, writer: &mut IndexWriter) -> Result<()> {
        let measured = self.refresh(writer)?;
        let index = writer.index();
        let foldable = index.vectors().is_some() && index.versions().len() > MOST_VERSIONS;
        if foldable || index.segments() > MOST_PARTS {
            writer.compact()?;
        }
        if self.json {
            let index = writer.index();
            let mut line = json!({
                "committed": self.note.taken, "rows": index.len(), "parts": index.segments(),
                "versions": index.versions().len(),
            });
            if let Some((measured, due)) = &measured {
                line["refreshed"] = json!(due);
                line["gap"] = json!(measured.gap);
                line["map"] = json!(measured.map);
            }
            print_json(&line)?;
        } else if let Some((measured, true)) = &measured
            && !self.quiet
        {
            complain(&format!(
                "new version after {} rows: MAP {:.3} instead of {:.3}",
                count(self.note.taken),
                measured.refreshed_map,
                measured.map
            ));
        }
        Ok(())
    }

    /// Measures drift if it is time, and makes a new version if that is due.
    fn refresh(&mut self, writer: &mut IndexWriter) -> Result<Option<(Drift, bool)>> {
        let rows = self.sketcher.rows();
        let before = self.note.measured_at as f64;
        // A sketch with a half-life changes as fast after many rows as after few.
        let step =
            self.sketcher.half_life().map_or(before, |half_life| before.min(half_life as f64));
        let grown = rows as f64 >= before + GROWTH * step;
        if self.args.refresh != "auto" || !grown {
            return Ok(None);
        }
        let sketch = self.sketcher.sketch();
        if sketch.reservoir_rows() < MIN_SAMPLE {
            return Ok(None);
        }
        let old = writer.index().model().clone();
        let measured = frosh::drift(&old, &sketch, writer.index().ranking())?;
        self.note.measured_at = rows;
        let due = measured.is_due(self.args.gap);
        if due {
            let maps =
                [(old.id(), measured.map), (measured.candidate.id(), measured.refreshed_map)];
            let refresh = writer.refresh(&measured.candidate)?.measured(maps);
            refresh.keep_missing(self.args.keep_codes).commit()?;
            self.versions += 1;
        }
        Ok(Some((measured, due)))
    }
}
