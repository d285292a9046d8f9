//! `frosh index build` and `frosh index add`: vectors into an index.

use super::ids::{AddWithIds, IdArgs, type_of};
use super::learner::{LearnArgs, Learner};
use super::{check_outside, done, report};
use crate::args::{Common, Reading, names};
use crate::choice;
use crate::kinds;
use crate::output::count;
use crate::pieces;
use crate::progress::Progress;
use crate::signals::{self, Interrupted};
use crate::skipping::Skipping;
use crate::verbs::encode::check_dim;
use anyhow::{Result, bail};
use clap::Args;
use frosh::{Index, IndexWriter, NewRows, StoredVectors};
use frosh_io::{Batch, IdType, Ids, Options, Vectors};
use std::cell::Cell;
use std::ffi::OsString;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Encode vectors into a new index.
#[derive(Args)]
#[command(after_help = "Examples:
  frosh index build model.frosh vectors.npy -o index/
  frosh index build model.frosh 'shards/*.parquet' --id-column id -o index/
  frosh index build model.frosh vectors.npy --ids ids.npy -o index/
  frosh index build model.frosh vectors.npy --vectors f16 -o index/

Factors, which estimate true distances, are kept if the model chose so; --factors and --no-factors
overrule it.

Ids are whole numbers or text. They come from a column of the data (--id-column) or from files of their own
(--ids). Without them, the id of a row is its number, from 0. With --skip-bad, rows that cannot be used are not in the
index, and their ids stay free; --ids has one id for each row all the same.")]
pub(super) struct Build {
    /// The model file
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    /// The folder to make: new, or empty, or one where a build was stopped
    #[arg(long, short, value_name = "INDEX")]
    output: PathBuf,
    /// Only codes, without the byte that estimates distances
    #[arg(long)]
    no_factors: bool,
    /// Keep factors beside each code, whatever the model chose
    #[arg(long, conflicts_with = "no_factors")]
    factors: bool,
    /// Keep the vectors too, so that what is found can be put in exact order
    #[arg(long, value_name = "TYPE", ignore_case = true,
          value_parser = names::<StoredVectors>(StoredVectors::NAMES))]
    vectors: Option<StoredVectors>,
    #[command(flatten)]
    input: Input,
}

/// Encode more vectors into an index. All of them are added, or after an error none.
#[derive(Args)]
#[command(after_help = "Examples:
  frosh index add index/ more.npy                   numbered on from the last id
  frosh index add index/ more.parquet --id-column id
  frosh index add index/ more.npy --ids ids.txt
  frosh index add index/ changed.npy --ids ids.txt --replace
  produce | frosh index add index/ - --learn --refresh auto

With --learn, rows are added every --commit-every rows, together with the state of a sketch of all rows. After a crash the
index has the rows of the last commit, and `frosh index info` tells how many of the stream these are: continue the stream
there, or give all of it again with --resume. Ctrl-C commits what was read.")]
pub(super) struct Add {
    /// The index
    #[arg(value_name = "INDEX")]
    index: PathBuf,
    /// Rows whose id is there take the place of those that have it; otherwise that is an error
    #[arg(long, requires = "own_ids")]
    replace: bool,
    #[command(flatten)]
    learning: LearnArgs,
    #[command(flatten)]
    input: Input,
}

/// What is added.
#[derive(Args)]
struct Input {
    /// Files, folders or patterns of vectors; - is standard input
    #[arg(required = true, value_name = "DATA")]
    data: Vec<OsString>,
    #[command(flatten)]
    ids: IdArgs,
    #[command(flatten)]
    reading: Reading,
    #[command(flatten)]
    skipping: Skipping,
}

impl Build {
    pub(super) fn run(&self, common: &Common) -> Result<()> {
        let model = kinds::model(&self.model, "frosh index build MODEL DATA -o INDEX")?;
        let vectors = self.input.open(None)?;
        check_dim(&model, &self.model, &vectors)?;
        check_outside(&self.output, self.input.files(&vectors).chain([&*self.model]))?;
        // Without a choice of the model, factors are kept where it has some.
        let chosen = match model.forecast() {
            Some(_) => choice::has_factors(&model),
            None => model.has_factors(),
        };
        let factors = self.factors || chosen && !self.no_factors;
        if factors && !model.has_factors() && model.hasher().is_some() {
            bail!(
                "{} was fitted without a sample of rows, so it has no factors: leave out --factors",
                self.model.display()
            );
        }
        let writer = IndexWriter::create(&self.output, &model, factors, self.vectors)?;
        self.input.run(common, &self.output, writer, &vectors, false, None)
    }
}

impl Add {
    pub(super) fn run(&self, common: &Common) -> Result<()> {
        kinds::check_index(&self.index)?;
        // Before the writer, which removes what a stopped one left in the folder.
        let kind = type_of(&Index::open(&self.index)?);
        let vectors = self.input.open(kind)?;
        check_outside(&self.index, self.input.files(&vectors))?;
        let writer = IndexWriter::open(&self.index)?;
        check_dim(writer.index().model(), &self.index, &vectors)?;
        let learning = &self.learning;
        let learner = Learner::start(learning, &writer, &self.index, common.json, common.quiet)?;
        let learner = learner.map(|learner| (learner, learning.resume));
        self.input.run(common, &self.index, writer, &vectors, self.replace, learner)
    }
}

impl Input {
    /// Opens the data, for an index whose ids are of this type.
    fn open(&self, kind: Option<IdType>) -> Result<Vectors> {
        let options = Options {
            id_column: self.ids.data_column(),
            id_rule: self.ids.rule(kind),
            ..self.reading.options(self.skipping.skip_bad)
        };
        kinds::vectors(&self.data, &options)
    }

    /// All files that are read.
    fn files<'a>(&'a self, vectors: &'a Vectors) -> impl Iterator<Item = &'a Path> {
        let data = vectors.files().iter().map(|file| &*file.path);
        let list = self.skipping.skipped.iter().map(|path| &**path);
        data.chain(self.ids.ids.iter().map(|path| &**path)).chain(list)
    }

    /// Adds some rows of a batch, the first of which has this number in the stream. `ids` are those of all rows.
    fn push(
        &self,
        new: &mut NewRows<'_>,
        batch: &Batch,
        rows: Range<usize>,
        number: u64,
        ids: Option<&Ids>,
    ) -> Result<()> {
        let number = number as usize;
        // Ids of the batch are those of its rows; ids of files are those of all rows.
        let of_rows = match (batch.ids(), ids) {
            (Some(ids), _) => Some((ids, rows.clone())),
            (None, Some(ids)) => Some((ids, number..number + rows.len())),
            (None, None) => None,
        };
        match of_rows {
            None => batch.feed_range(rows, new)?,
            Some((ids, range)) if range.end > ids.len() => {
                let name = self.ids.ids[0].display();
                bail!("{name}: {} ids, but the data has more rows", ids.len());
            }
            Some((ids, range)) => batch.feed_range(rows, AddWithIds { new, ids, range })?,
        }
        Ok(())
    }

    fn run(
        &self,
        common: &Common,
        path: &Path,
        mut writer: IndexWriter,
        vectors: &Vectors,
        replace: bool,
        learner: Option<(Learner<'_>, bool)>,
    ) -> Result<()> {
        let start = Instant::now();
        let rule = self.ids.rule(type_of(writer.index()));
        let ids = self.ids.read(rule, vectors.rows())?;
        let inputs = vectors.files().iter().map(|file| &*file.path);
        let mut skipped =
            self.skipping.start(inputs.chain(self.ids.ids.iter().map(|path| &**path)))?;
        let resume_at = learner.as_ref().filter(|(_, resume)| *resume).map(|(l, _)| l.taken());
        let mut learner = learner.map(|(learner, _)| learner);
        if let Some(learner) = &mut learner {
            // A run that was killed may have left this undone.
            learner.tend(&mut writer)?;
        }
        let mut new = writer.add().replace(replace);
        let bytes_per_row = vectors.dim() * vectors.kind().bytes();
        let mut progress = Progress::new("adding", vectors.rows(), bytes_per_row, common.quiet);
        progress.start_at(resume_at.unwrap_or(0));
        // Rows that were added, and all rows that were passed.
        let (mut added, mut passed) = (0u64, None);
        let side_by_side = learner.is_none() && pieces::can(vectors);
        if side_by_side {
            pieces::batches_in_order(vectors, |batch, left_out| {
                for (run, first) in batch.iter().flat_map(|batch| batch.runs()) {
                    let Some(batch) = batch else { break };
                    if ids.is_none() && batch.ids().is_none() {
                        new.skip_numbers(first - passed.unwrap_or(0));
                    }
                    passed = Some(first + run.len() as u64);
                    added += run.len() as u64;
                    progress.add(run.len());
                    self.push(&mut new, batch, run, first, ids.as_ref())?;
                }
                skipped.add(&left_out)
            })?;
        }
        let mut batches = (!side_by_side).then(|| vectors.batches_from(resume_at.unwrap_or(0)));
        let interrupt = learner.as_ref().map(|_| signals::finish_on_interrupt());
        while let Some(batches) = &mut batches {
            let (clock, late) = (Instant::now(), Cell::new(false));
            let stop = || {
                late.set(learner.as_ref().is_some_and(Learner::is_late));
                late.get() || interrupt.as_ref().is_some_and(|interrupt| interrupt.is_due(clock))
            };
            let Some(batch) = batches.next_unless(stop)? else {
                let Some(learner) = learner.as_mut().filter(|_| late.get()) else { break };
                // The stream pauses: what came so far need not wait.
                let committed = learner.commit(new);
                committed.map_err(|error| self.ids.duplicate(error, ids.as_ref(), vectors))?;
                learner.tend(&mut writer)?;
                new = writer.add().replace(replace);
                continue;
            };
            for (run, first) in batch.runs() {
                let before = passed.unwrap_or(if resume_at.is_some() { first } else { 0 });
                if ids.is_none() && batch.ids().is_none() {
                    new.skip_numbers(first - before);
                }
                passed = Some(first + run.len() as u64);
                let mut from = run.start;
                while from < run.end {
                    let room = learner.as_ref().map_or(usize::MAX, Learner::room);
                    let rows = from..run.end.min(from.saturating_add(room));
                    let number = first + (from - run.start) as u64;
                    from = rows.end;
                    self.push(&mut new, batch, rows.clone(), number, ids.as_ref())?;
                    let Some(learner) = &mut learner else { continue };
                    batch.feed_range(rows.clone(), &mut learner.sketcher)?;
                    learner.add(rows.len());
                    if learner.is_full() {
                        let committed = learner.commit(new);
                        committed
                            .map_err(|error| self.ids.duplicate(error, ids.as_ref(), vectors))?;
                        learner.tend(&mut writer)?;
                        new = writer.add().replace(replace);
                    }
                }
            }
            added += batch.len() as u64;
            progress.add(batch.len());
            skipped.add(&batches.take_left_out())?;
        }
        let interrupted = interrupt.as_ref().is_some_and(|interrupt| interrupt.came());
        // From here on an interrupt stops the program at once.
        drop(interrupt);
        let mut passed = passed.unwrap_or(0);
        drop(progress);
        if let Some(batches) = &mut batches {
            skipped.add(&batches.take_left_out())?;
        }
        if skipped.end() > passed {
            if ids.is_none() && self.ids.id_column.is_none() {
                new.skip_numbers(skipped.end() - passed);
            }
            passed = skipped.end();
        }
        if let Some(ids) = ids.as_ref().filter(|ids| ids.len() as u64 != passed && !interrupted) {
            let name = self.ids.ids[0].display();
            bail!(
                "{name}: {} ids, but the data has {passed} rows: give one id for each row",
                ids.len()
            );
        }
        if added == 0 && learner.is_none() {
            bail!("there are no rows to add: the data is empty, or every row was left out");
        }
        // Before the change counts: after it nothing is an error.
        let left_out = skipped.finish()?;
        let waiting = learner.as_ref().is_some_and(Learner::has_rows);
        let replaced = match &mut learner {
            Some(learner) if !waiting => {
                drop(new);
                Ok(learner.replaced)
            }
            Some(learner) => learner.commit(new).map(|()| learner.replaced),
            None => new.commit(),
        };
        let replaced =
            replaced.map_err(|error| self.ids.duplicate(error, ids.as_ref(), vectors))?;
        if let Some(learner) = learner.as_mut().filter(|_| waiting) {
            learner.tend(&mut writer)?;
        }
        let told =
            report(common, path, writer.index(), added, replaced, &left_out, start.elapsed());
        done(told);
        if interrupted {
            bail!(Interrupted(format!(
                "interrupted: the {} rows read until then were added to {}",
                count(added),
                path.display()
            )));
        }
        Ok(())
    }
}
