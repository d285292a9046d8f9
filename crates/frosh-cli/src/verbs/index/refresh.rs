//! `frosh index refresh`: a new model for an index, if the data has changed.

use super::ids::{IdArgs, type_of};
use super::{check_outside, done};
use crate::args::{Common, Reading, names};
use crate::kinds::{self, Kind};
use crate::output::{count, print, print_json, seconds};
use crate::progress::Progress;
use crate::skipping::Skipping;
use crate::verbs::drift::{learn_like, settings_like, share};
use crate::verbs::encode::check_dim;
use anyhow::{Context as _, Result, bail};
use clap::Args;
use frosh::{Drift, Element, Index, IndexWriter, Ranking, Reencoding, Rows, Sketch, Sketcher};
use frosh_io::{Ids, Options, RowConsumer, Vectors};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Make a new version of the model, if the data has changed.
///
/// Compares the newest model with a new one on sampled rows. If the new one ranks better by --gap, it becomes a new
/// version: it encodes rows that are added from now on, and encodes again the rows that came since the last version. All
/// other rows keep their codes and their model.
#[derive(Args)]
#[command(after_help = "Examples:
  frosh index refresh index/ all.sketch
  frosh index refresh index/ --rows vectors.npy
  frosh index refresh index/ --rows 'shards/*.parquet' --column emb --gap 0.02
  frosh index refresh index/ all.sketch --source vectors.npy --ids ids.txt

Without a sketch and --rows, the sketch is used that the index keeps (`frosh index add --learn`), or one of the vectors
that it stores.

Rows are encoded again from the vectors that the index stores, or from --source. An index without stored vectors
needs --source, or --keep-codes, with which these rows keep their codes and their model.")]
pub(super) struct Refresh {
    /// The index
    #[arg(value_name = "INDEX")]
    index: PathBuf,
    /// A sketch or checkpoint file of the rows that are searched now
    #[arg(value_name = "SKETCH", conflicts_with = "rows")]
    sketch: Option<PathBuf>,
    /// Files, folders or patterns of the vectors that are searched now; - is standard input
    #[arg(long, num_args = 1.., value_name = "DATA")]
    rows: Vec<OsString>,
    /// The gap in MAP from which on a new version is made
    #[arg(long, default_value_t = Drift::DEFAULT_GAP, value_name = "SHARE", value_parser = share)]
    gap: f64,
    /// Make a new version whatever the gap is
    #[arg(long, conflicts_with = "gap")]
    force: bool,
    /// The ranking that searches use; by default the one of the index
    #[arg(long, value_name = "NAME", ignore_case = true,
          value_parser = names::<Ranking>(Ranking::NAMES))]
    rank: Option<Ranking>,
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    reading: Reading,
    #[command(flatten)]
    skipping: Skipping,
}

/// Where the vectors of rows are that are encoded again.
#[derive(Args)]
pub(super) struct Source {
    /// Vectors of the rows of the index, where it stores none: files, folders or patterns. Without ids, row i has the id i
    #[arg(long, num_args = 1.., value_name = "DATA")]
    source: Vec<OsString>,
    /// Rows whose vectors are not there keep their codes and their model
    #[arg(long)]
    keep_codes: bool,
    #[command(flatten)]
    ids: IdArgs,
}

impl Refresh {
    pub(super) fn run(&self, common: &Common) -> Result<()> {
        let start = Instant::now();
        kinds::check_index(&self.index)?;
        let index = Index::open(&self.index)?;
        let inputs = self
            .sketch
            .iter()
            .map(|path| &**path)
            .chain(self.rows.iter().chain(&self.source.source).map(Path::new));
        check_outside(&self.index, inputs)?;
        let source = self.source.open(&index, &self.reading, &self.index)?;
        let (sketch, model) = (self.sketch(&index, common)?, index.model().clone());
        let ranking = self.rank.unwrap_or(index.ranking());
        drop(index);
        let measured = frosh::drift(&model, &sketch, ranking)
            .with_context(|| format!("{} and the sketch", self.index.display()))?;
        let due = self.force || measured.is_due(self.gap);
        let mut writer = IndexWriter::open(&self.index)?;
        if writer.index().model().id() != model.id() {
            bail!("{} has a newer model since: start again", self.index.display());
        }
        let mut encoded = 0;
        if due {
            let maps =
                [(model.id(), measured.map), (measured.candidate.id(), measured.refreshed_map)];
            let refresh = writer.refresh(&measured.candidate)?.measured(maps);
            encoded = self.source.finish(refresh, source, common)?;
        }
        let took = start.elapsed().as_secs_f64();
        let told = self.report(common, writer.index(), &measured, due, encoded, took);
        if due {
            done(told)
        } else {
            told?
        }
        Ok(())
    }

    /// The sketch of the rows that are searched now.
    fn sketch(&self, index: &Index, common: &Common) -> Result<Sketch> {
        if !self.rows.is_empty() {
            let read = (&self.reading, &self.skipping);
            return Ok(learn_like(index.model(), &self.index, &self.rows, read, common)?.0);
        }
        match &self.sketch {
            Some(path) if Kind::of(path) == Some(Kind::Checkpoint) => {
                Ok(Sketcher::load(path)?.sketch())
            }
            Some(path) => kinds::sketch(path),
            None => self.own_sketch(index),
        }
    }

    /// The sketch that the index keeps, or one of its stored vectors.
    fn own_sketch(&self, index: &Index) -> Result<Sketch> {
        if let Some(sketcher) = index.sketcher()? {
            return Ok(sketcher.sketch());
        }
        let mut sketcher = Sketcher::new(settings_like(index.model()))?;
        if index.learn_stored(&mut sketcher)? == 0 {
            bail!(
                "{} keeps no sketch and no vectors: give a sketch of the rows that are searched now, or the rows with --rows",
                self.index.display()
            );
        }
        Ok(sketcher.finish())
    }

    fn report(
        &self,
        common: &Common,
        index: &Index,
        measured: &Drift,
        due: bool,
        encoded: u64,
        took: f64,
    ) -> Result<()> {
        if common.json {
            return print_json(&json!({
                "refreshed": due,
                "map": measured.map,
                "refreshed_map": measured.refreshed_map,
                "gap": measured.gap,
                "gap_error": measured.gap_error,
                "threshold": if self.force { Value::Null } else { json!(self.gap) },
                "ranking": measured.ranking.as_str(),
                "encoded": encoded,
                "rows": index.len(),
                "versions": super::versions(index),
                "model": index.model().id().to_string(),
                "seconds": took,
            }));
        }
        if common.quiet {
            return Ok(());
        }
        let gap = format!(
            "MAP {:.3} with the newest model, {:.3} with a new one (gap {:.3} ± {:.3})",
            measured.map,
            measured.refreshed_map,
            measured.gap,
            2.0 * measured.gap_error
        );
        let what = match due {
            true => format!(
                "new version {}, {} rows encoded again, {} versions now",
                index.model().id(),
                count(encoded),
                index.versions().len()
            ),
            false => format!(
                "unchanged: the gap is not above {} and two of its standard errors; --force refreshes all the same",
                self.gap
            ),
        };
        print(&format!("{}: {gap}\n{what}; {}\n", self.index.display(), seconds(took)))
    }
}

/// The vectors of `--source`, opened.
pub(super) struct OpenSource {
    vectors: Vectors,
    ids: Option<Ids>,
}

impl Source {
    /// Opens the vectors, if they are given and needed.
    pub(super) fn open(
        &self,
        index: &Index,
        reading: &Reading,
        path: &Path,
    ) -> Result<Option<OpenSource>> {
        if self.source.is_empty() {
            if !self.ids.ids.is_empty() || self.ids.id_column.is_some() {
                bail!("--ids and --id-column are ids of the rows of --source: give it too");
            }
            return Ok(None);
        }
        let kind = type_of(index);
        let options = Options {
            id_column: self.ids.data_column(),
            id_rule: self.ids.rule(kind),
            ..reading.options(false)
        };
        let vectors = kinds::vectors(&self.source, &options)?;
        check_dim(index.model(), path, &vectors)?;
        let ids = self.ids.read(self.ids.rule(kind), vectors.rows())?;
        Ok(Some(OpenSource { vectors, ids }))
    }

    /// Encodes the rows from the source, if there is one, and makes the change. Returns the number of rows.
    pub(super) fn finish(
        &self,
        mut again: Reencoding<'_>,
        source: Option<OpenSource>,
        common: &Common,
    ) -> Result<u64> {
        if let Some(OpenSource { vectors, ids }) = source {
            let bytes_per_row = vectors.dim() * vectors.kind().bytes();
            let mut progress =
                Progress::new("encoding", vectors.rows(), bytes_per_row, common.quiet);
            let (mut batches, mut first) = (vectors.batches(), 0u64);
            while let Some(batch) = batches.next()? {
                let rows = batch.len();
                let (ids, range) = match (batch.ids(), &ids) {
                    (Some(ids), _) => (Some(ids), 0..rows),
                    (None, Some(ids)) => (Some(ids), first as usize..first as usize + rows),
                    (None, None) => (None, first as usize..first as usize + rows),
                };
                if ids.is_some_and(|ids| range.end > ids.len()) {
                    bail!("there are fewer ids than rows in --source: give one id for each row");
                }
                batch.feed(EncodeAgain { again: &mut again, ids, range })?;
                first += rows as u64;
                progress.add(rows);
            }
        }
        Ok(again.keep_missing(self.keep_codes).commit()?)
    }
}

/// Encodes rows of a source again.
struct EncodeAgain<'a, 'w> {
    again: &'a mut Reencoding<'w>,
    /// The ids, if the rows are not numbered.
    ids: Option<&'a Ids>,
    range: Range<usize>,
}

impl RowConsumer for EncodeAgain<'_, '_> {
    type Output = ();

    fn consume<T: Element>(self, rows: Rows<'_, T>) -> frosh::Result<()> {
        match self.ids {
            None => {
                let ids: Vec<u64> = self.range.map(|row| row as u64).collect();
                self.again.push_with_ids(rows, &ids)
            }
            Some(Ids::Numbers(numbers)) => self.again.push_with_ids(rows, &numbers[self.range]),
            Some(Ids::Names(names)) => {
                let names: Vec<&str> = self.range.map(|i| names.get(i)).collect();
                self.again.push_with_names(rows, &names)
            }
        }
    }
}
