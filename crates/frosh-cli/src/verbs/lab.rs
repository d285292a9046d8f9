//! `frosh lab`: the experiments of the paper.

use crate::args::Common;
use crate::output::{complain, count, print, print_json, seconds};
use anyhow::Result;
use clap::{Args, ValueEnum};
use frosh_lab::{Experiment, Found, Results, Settings};
use serde_json::json;
use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::path::PathBuf;

/// Measure what the paper measured: its figures and its table, on this machine.
#[derive(Args)]
#[command(after_help = "Examples:
  frosh lab all --quick               small, on made-up data, in minutes
  frosh lab data --data DIR           data sets that are there, and sources
  frosh lab all --data DIR            everything, on real data where it is there
  frosh lab all --data DIR --resume   go on where a run was stopped
  frosh lab train-time --data DIR --bits 64 --repeats 3 --out times
  frosh lab streams --data DIR        data that changes: versions of a model
  frosh lab drift --data DIR          what `frosh drift` predicts

Results are in the folder --out: report.html, the page; README.md, its summary; results.json and a CSV file for each
experiment; the figures as SVG files. They are written after every cell; a run that is stopped keeps what it has. Made-up
data that stands in for a set has a name ending in -stand-in. Times are processor time on one thread, without reading or
making data. A run with --quick is smaller than the paper's: it shows numbers, and gives no verdicts on the claims.")]
pub(crate) struct Lab {
    /// What to measure
    #[arg(value_enum, value_name = "WHAT")]
    what: What,
    /// Folders with the paper's data sets, or files of your own
    #[arg(long, value_name = "DIR|FILE", num_args = 1..)]
    data: Vec<PathBuf>,
    /// Folder for the results
    #[arg(long, default_value = "frosh-lab", value_name = "DIR")]
    out: PathBuf,
    /// Every experiment at reduced size
    #[arg(long)]
    quick: bool,
    /// Repeats of each cell at most; 10, or 3 with --quick
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    repeats: Option<u32>,
    /// Seconds after which a cell is not repeated any more: more gives more repeats of what is slow
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS")]
    cell_seconds: f64,
    /// Queries of each evaluation; 1000, or 200 with --quick
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    queries: Option<u32>,
    /// Code lengths in place of the usual ones
    #[arg(long, value_delimiter = ',', value_name = "N,...",
          value_parser = clap::value_parser!(u32).range(1..=300))]
    bits: Vec<u32>,
    /// Take Algorithm 1 literally: no rotation of the learned directions
    #[arg(long)]
    no_rotation: bool,
    /// Go on with the results that are there
    #[arg(long)]
    resume: bool,
    /// Seed of the methods and of the choice of queries
    #[arg(long, default_value_t = 0, value_name = "N")]
    seed: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// Everything
    All,
    /// Nothing: only tell which data sets are there
    Data,
    /// Nothing: only make the page again from the results in --out
    Report,
    /// Figure 2: the error of FD and FFD (measured together with their time)
    SketchError,
    /// Figure 3: the time of FD and FFD (measured together with their error)
    SketchTime,
    /// Figure 4: MAP after each of ten rounds
    Rounds,
    /// Figure 5: MAP against code length
    Bits,
    /// Figure 6: precision-recall curves by the number of returned rows
    PrecisionRecall,
    /// Table 2: training time, without and with the learned rotation
    TrainTime,
    /// Not in the paper, and not part of all: how well the gap of `frosh drift` predicts what an old model loses
    Drift,
    /// Not in the paper: streams that change, and versions of a model
    Streams,
}

impl What {
    fn experiments(self) -> Vec<Experiment> {
        match self {
            What::All => Experiment::ALL.to_vec(),
            What::Data | What::Report | What::Drift => Vec::new(),
            What::SketchError | What::SketchTime => vec![Experiment::Sketch],
            What::Rounds => vec![Experiment::Rounds],
            What::Bits => vec![Experiment::Bits],
            What::PrecisionRecall => vec![Experiment::PrecisionRecall],
            What::TrainTime => vec![Experiment::TrainTime],
            What::Streams => vec![Experiment::Streams],
        }
    }
}

impl Lab {
    pub(crate) fn run(&self, common: &Common) -> Result<()> {
        if self.what == What::Data {
            return self.tell_data(common);
        }
        if self.what == What::Drift {
            return self.drift(common);
        }
        if self.what == What::Report {
            let results = frosh_lab::load(&self.out)?;
            frosh_lab::publish(&results, &self.out)?;
            return self.summary(common, &results);
        }
        let words = std::env::args_os().skip(1);
        let words: Vec<String> = words.map(|word| quoted(&word.to_string_lossy())).collect();
        let settings = Settings {
            data: self.data.clone(),
            out: self.out.clone(),
            quick: self.quick,
            repeats: self.repeats,
            cell_seconds: self.cell_seconds,
            queries: self.queries,
            bits: self.bits.iter().map(|b| *b as usize).collect(),
            no_rotation: self.no_rotation,
            resume: self.resume,
            seed: self.seed,
            command: format!("frosh {}", words.join(" ")),
        };
        let show = !common.quiet && std::io::stderr().is_terminal();
        let results = frosh_lab::run(&settings, &self.what.experiments(), &mut |line| {
            if show {
                complain(line);
            }
        })?;
        self.summary(common, &results)
    }

    /// Measures on data sets in orders that drift.
    fn drift(&self, common: &Common) -> Result<()> {
        let bits = self.bits.first().map_or(64, |bits| *bits as usize);
        // What is skipped is told always.
        let told = |line: &str| {
            if !common.quiet {
                complain(line);
            }
        };
        let found =
            frosh_lab::drift_predictor(&self.data, &self.out, bits, self.quick, self.seed, &mut {
                told
            })?;
        if common.json {
            return print_json(&json!({
                "out": self.out,
                "bits": bits,
                "pairs": found.pairs,
                "scores": found.scores,
                "bias": found.bias,
            }));
        }
        if common.quiet {
            return Ok(());
        }
        let mut text = format!(
            "{} pairs of an old model and a later collection, {bits} bits, estimated ranking\n\
             what predicts the loss of MAP on all rows   correlation   AUC (loss above .02)\n",
            found.pairs.len()
        );
        for score in &found.scores {
            let auc = score.auc.map_or("-".into(), |auc| format!("{auc:.3}"));
            text += &format!("  {:<42}{:>11.3}   {auc:>6}\n", score.figure, score.correlation);
        }
        text += &format!(
            "the gap reads {:+.3} on average; drift.csv and drift.svg are in {}\n",
            found.bias,
            self.out.display()
        );
        print(&text)
    }

    fn summary(&self, common: &Common, results: &Results) -> Result<()> {
        let mut counts = BTreeMap::<&str, u64>::new();
        for record in &results.records {
            *counts.entry(&record.experiment).or_default() += 1;
        }
        let claims = frosh_lab::claims(results);
        let page = self.out.join("report.html");
        if common.json {
            return print_json(&json!({
                "out": self.out,
                "page": page,
                "seconds": results.run.seconds,
                "records": counts,
                "claims": claims,
            }));
        }
        if common.quiet {
            return Ok(());
        }
        let all: u64 = counts.values().sum();
        let mut text = format!(
            "{} measurements in {}, after {} in all\n",
            count(all),
            self.out.display(),
            seconds(results.run.seconds)
        );
        for (experiment, n) in counts {
            text += &format!("  {experiment:<18} {:>6}   {experiment}.csv\n", count(n));
        }
        if !results.only_streams() {
            text +=
                &format!("claims of the paper, {} in all     real data  stand-ins\n", claims.len());
            for (verdict, real, made) in frosh_lab::tally(&claims) {
                text += &format!("  {:<30} {real:>9}  {made:>9}\n", verdict.text());
            }
        }
        text += &format!("the page: {}\n", page.display());
        print(&text)
    }

    fn tell_data(&self, common: &Common) -> Result<()> {
        let sets = frosh_lab::catalogue(&self.data)?;
        if common.json {
            let one = |set: &Found| {
                json!({
                    "name": set.name,
                    "rows": set.rows,
                    "dim": set.dim,
                    "origin": set.origin,
                    "files": set.files,
                    "trouble": set.trouble,
                })
            };
            return print_json(&json!(sets.iter().map(one).collect::<Vec<_>>()));
        }
        let mut text = String::new();
        for set in &sets {
            let shape = format!("{} x {}", count(set.rows), count(set.dim as u64));
            text += &format!("{:<14} {shape:>18}  ", set.name);
            text += &match (&set.trouble, set.files.as_slice()) {
                (Some(trouble), _) => format!("unusable: {trouble}\n"),
                (None, []) => format!("not there; it comes from {}\n", set.origin),
                (None, files) => {
                    let files: Vec<_> = files.iter().map(|f| f.display().to_string()).collect();
                    format!("{}\n", files.join(", "))
                }
            };
        }
        if sets.iter().any(|set| set.files.is_empty()) {
            text += "\nMade-up data stands in for gist1m and flickr25600 where they are not there; put files \
                     into a folder and name it with --data.\n";
        }
        print(&text)
    }
}

/// A word of the command as a shell reads it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./,=:+@%".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}
