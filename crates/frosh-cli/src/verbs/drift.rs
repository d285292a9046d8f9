//! `frosh drift`: whether the data has changed so much that a new model is due.

use crate::args::{Common, Reading, names};
use crate::choice;
use crate::kinds::{self, Kind};
use crate::output::{count, print, print_json, seconds};
use crate::progress::Progress;
use crate::skipping::{LeftOut, Skipping};
use crate::verbs::encode::check_dim;
use anyhow::{Context as _, Result, bail};
use clap::Args;
use frosh::{Config, Index, Method, Model, Ranking, Sketch, Sketcher};
use serde_json::json;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Tell whether the data has changed so much that a new model is due.
///
/// Makes a new model of the same kind and size, and compares both on sampled rows of the data.
#[derive(Args)]
#[command(after_help = "Examples:
  frosh drift model.frosh vectors.npy
  frosh drift index/ 'shards/*.parquet' --column embedding
  frosh drift model.frosh today.sketch --gap 0.02 --json
  frosh drift model.frosh new/ -q; [ $? -eq 3 ] && ./retrain.sh  for cron

Exit codes: 0 if no refresh is due, 3 if one is, 1 and 2 for errors as everywhere.

DATA are the vectors that are searched now, or a sketch of them. A sketch needs at least twice as many rows as the model has
bits. 256 sampled rows query up to 4,096 others; the relevant rows of each are the nearest 2 %. The gap is the MAP of the new
model less that of the old one. A refresh is due if the gap is above --gap and above two of its standard errors.")]
pub(crate) struct Drift {
    /// The model file, or the folder of an index
    #[arg(value_name = "MODEL|INDEX")]
    model: PathBuf,
    /// Files, folders or patterns of vectors (- is standard input), or one sketch or checkpoint file
    #[arg(required = true, value_name = "DATA|SKETCH")]
    data: Vec<OsString>,
    /// The gap in MAP from which on a refresh is due
    #[arg(long, default_value_t = frosh::Drift::DEFAULT_GAP, value_name = "SHARE", value_parser = share)]
    gap: f64,
    /// The ranking that searches use; by default the one that the model chose
    #[arg(long, value_name = "NAME", ignore_case = true,
          value_parser = names::<Ranking>(Ranking::NAMES))]
    rank: Option<Ranking>,
    #[command(flatten)]
    reading: Reading,
    #[command(flatten)]
    skipping: Skipping,
}

/// The end of a measurement that found a refresh due: no failure, but with an exit code of its own.
#[derive(Debug)]
pub(crate) struct RefreshDue;

impl fmt::Display for RefreshDue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a refresh is due")
    }
}

impl std::error::Error for RefreshDue {}

pub(crate) fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(share),
        _ => Err("expected a number from 0 to 1".into()),
    }
}

impl Drift {
    pub(crate) fn run(&self, common: &Common) -> Result<()> {
        let start = Instant::now();
        let model = match Kind::of(&self.model) {
            Some(Kind::Index) => Index::open(&self.model)?.model().clone(),
            _ => kinds::model(&self.model, "frosh drift MODEL DATA")?,
        };
        let (sketch, left_out) = self.sketch(&model, common)?;
        let ranking = self.rank.unwrap_or(model.ranking());
        let measured = frosh::drift(&model, &sketch, ranking)
            .with_context(|| format!("{} and the data", self.model.display()))?;
        let due = measured.is_due(self.gap);
        if common.json {
            print_json(&json!({
                "model": self.model.display().to_string(),
                "id": model.id().to_string(),
                "rows": sketch.rows(),
                "sampled_rows": sketch.reservoir_rows(),
                "queries": measured.queries,
                "base": measured.base,
                "independent": measured.independent,
                "ranking": ranking.as_str(),
                "map": measured.map,
                "refreshed_map": measured.refreshed_map,
                "gap": measured.gap,
                "gap_error": measured.gap_error,
                "recall": { "10": measured.recall },
                "refreshed_recall": { "10": measured.refreshed_recall },
                "energy": measured.energy,
                "refreshed_energy": measured.refreshed_energy,
                "energy_drop": measured.energy_drop(),
                "mean_shift": measured.mean_shift,
                "threshold": self.gap,
                "due": due,
                "left_out": left_out.as_ref().map_or(0, |rows| rows.count),
                "seconds": start.elapsed().as_secs_f64(),
            }))?;
        } else if !common.quiet {
            let took = start.elapsed().as_secs_f64();
            self.report(&model, &sketch, &measured, due, left_out.as_ref(), took)?;
        }
        if due { Err(RefreshDue.into()) } else { Ok(()) }
    }

    /// The sketch of the data, and what was left out if vectors were read.
    fn sketch(&self, model: &Model, common: &Common) -> Result<(Sketch, Option<LeftOut>)> {
        let kind = |data: &OsString| Kind::of(Path::new(data));
        let ready = |kind| matches!(kind, Some(Kind::Sketch | Kind::Checkpoint));
        if self.data.len() > 1 && self.data.iter().any(|data| ready(kind(data))) {
            bail!("give one sketch, or vectors: `frosh merge` makes one sketch of many");
        }
        match kind(&self.data[0]) {
            Some(Kind::Sketch) => Ok((kinds::sketch(Path::new(&self.data[0]))?, None)),
            Some(Kind::Checkpoint) => Ok((Sketcher::load(&self.data[0])?.sketch(), None)),
            _ => {
                let read = (&self.reading, &self.skipping);
                let (sketch, left_out) = learn_like(model, &self.model, &self.data, read, common)?;
                Ok((sketch, Some(left_out)))
            }
        }
    }

    fn report(
        &self,
        model: &Model,
        sketch: &Sketch,
        measured: &frosh::Drift,
        due: bool,
        left_out: Option<&LeftOut>,
        took: f64,
    ) -> Result<()> {
        let mut text = format!(
            "{}: {}, from {} rows\n{} rows now, {} of them sampled: {} queries, {} rows searched, {} ranking, in {}\n{}\n",
            self.model.display(),
            choice::title(model),
            count(model.rows()),
            count(sketch.rows()),
            count(sketch.reservoir_rows() as u64),
            measured.queries,
            count(measured.base as u64),
            measured.ranking,
            seconds(took),
            left_out.map(|rows| rows.line(", left out")).unwrap_or_default(),
        );
        text += &format!("{:<20}{:>12}{:>12}\n", "", "this model", "a new one");
        for (name, old, new) in [
            ("MAP", measured.map, measured.refreshed_map),
            ("recall@10", measured.recall, measured.refreshed_recall),
            ("captured energy", measured.energy, measured.refreshed_energy),
        ] {
            text += &format!("{name:<20}{old:>12.3}{new:>12.3}\n");
        }
        text += &format!(
            "gap in MAP {:.3} (± {:.3}), mean moved by {:.2} of the rows' distance to it\n",
            measured.gap,
            2.0 * measured.gap_error,
            measured.mean_shift
        );
        if !measured.independent {
            text += "note: the new model was fitted to some of these rows, so the gap may be about .01 too large\n";
        }
        text += &if due {
            format!(
                "\na refresh is due: the gap is above {}. Make a new model with `frosh train`, or with `frosh fit` from a \
                 sketch, and encode with it\n",
                self.gap
            )
        } else if measured.gap > self.gap {
            format!(
                "\nno refresh is due: the gap is above {}, but within two standard errors of 0\n",
                self.gap
            )
        } else {
            format!("\nno refresh is due: the gap is not above {}\n", self.gap)
        };
        print(&text)
    }
}

/// The settings of a sketcher for a new model of the same kind and size.
pub(crate) fn settings_like(model: &Model) -> Config {
    let config = Config::new(model.dim()).metric(model.metric()).seed(model.seed());
    match model.hasher() {
        // LSH learns no directions, so it needs no rows for them.
        Some(hasher) if hasher.method() == Method::Lsh => config.method(Method::Lsh),
        Some(hasher) => config.method(hasher.method()).sketch_rows(2 * hasher.bits()),
        None => config.for_quantizer(model.bytes_per_row()),
    }
}

/// Learns a sketch of vectors with the settings of a model, which is in the file or folder `whose`.
pub(crate) fn learn_like(
    model: &Model,
    whose: &Path,
    data: &[OsString],
    (reading, skipping): (&Reading, &Skipping),
    common: &Common,
) -> Result<(Sketch, LeftOut)> {
    let vectors = kinds::vectors(data, &reading.options(skipping.skip_bad))?;
    check_dim(model, whose, &vectors)?;
    let inputs = vectors.files().iter().map(|file| &*file.path).chain([whose]);
    let mut skipped = skipping.start(inputs)?;
    let mut sketcher = Sketcher::new(settings_like(model))?;
    let bytes_per_row = vectors.dim() * vectors.kind().bytes();
    let mut progress = Progress::new("learning", vectors.rows(), bytes_per_row, common.quiet);
    let mut batches = vectors.batches();
    while let Some(batch) = batches.next()? {
        batch.feed(&mut sketcher)?;
        progress.add(batch.len());
        skipped.add(&batches.take_left_out())?;
    }
    drop(progress);
    skipped.add(&batches.take_left_out())?;
    Ok((sketcher.finish(), skipped.finish()?))
}
