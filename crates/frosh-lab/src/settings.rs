//! What the lab is asked to do, and how large its tasks are.

use crate::data::{self, DataSet, FileSource, Source, StandIn};
use crate::error::Result;
use std::path::PathBuf;

/// Largest base that MAP is measured on, in bytes: it is kept in memory.
const MOST_BASE_BYTES: u64 = 1 << 30;
/// Seed of made-up data: the same data in every run, whatever the seed of the methods.
const DATA_SEED: u64 = 2019;

/// One of the experiments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Experiment {
    /// Figures 2 and 3: error and time of FD and FFD on the paper's made-up matrix.
    Sketch,
    /// Figure 4: MAP after each of ten rounds.
    Rounds,
    /// Figure 5: MAP against code length.
    Bits,
    /// Figure 6: precision-recall curves.
    PrecisionRecall,
    /// Table 2: training time.
    TrainTime,
    /// Not in the paper: streams that change.
    Streams,
}

impl Experiment {
    /// All of them.
    pub const ALL: [Experiment; 6] = [
        Experiment::Sketch,
        Experiment::Rounds,
        Experiment::Bits,
        Experiment::PrecisionRecall,
        Experiment::TrainTime,
        Experiment::Streams,
    ];

    /// Its name in records, and of its CSV file.
    pub fn name(self) -> &'static str {
        match self {
            Experiment::Sketch => "sketch",
            Experiment::Rounds => "rounds",
            Experiment::Bits => "bits",
            Experiment::PrecisionRecall => "precision-recall",
            Experiment::TrainTime => "train-time",
            Experiment::Streams => "streams",
        }
    }
}

/// What the lab is asked to do.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Folders to look for the paper's data sets in, and files of one's own.
    pub data: Vec<PathBuf>,
    /// Folder for the results.
    pub out: PathBuf,
    /// Whether sizes are reduced.
    pub quick: bool,
    /// Repeats of each cell, at most; 10, or 3 if quick.
    pub repeats: Option<u32>,
    /// Seconds after which a cell is not repeated any more; with 10, all at full size takes most of an hour.
    pub cell_seconds: f64,
    /// Queries of each evaluation; 1,000, or 200 if quick.
    pub queries: Option<u32>,
    /// Code lengths in place of the usual ones.
    pub bits: Vec<usize>,
    /// Whether codes are made without any rotation, as Algorithm 1 is printed.
    pub no_rotation: bool,
    /// Whether to go on with what an earlier run left.
    pub resume: bool,
    /// Seed of the methods and of the choice of queries.
    pub seed: u64,
    /// The command, to be written beside the results.
    pub command: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            data: Vec::new(),
            out: PathBuf::from("frosh-lab"),
            quick: false,
            repeats: None,
            cell_seconds: 10.0,
            queries: None,
            bits: Vec::new(),
            no_rotation: false,
            resume: false,
            seed: 0,
            command: String::new(),
        }
    }
}

/// What a data set is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// MAP: small enough for exact search and for many encodings.
    Map,
    /// Time: as large as the set is.
    Time,
}

impl Settings {
    pub(crate) fn repeats(&self) -> u32 {
        self.repeats.unwrap_or(if self.quick { 3 } else { 10 }).max(1)
    }

    pub(crate) fn queries(&self) -> u32 {
        self.queries.unwrap_or(if self.quick { 200 } else { 1000 }).max(1)
    }

    /// The code lengths of an experiment.
    pub(crate) fn bits(&self, experiment: Experiment) -> Vec<usize> {
        let mut bits = match (experiment, self.bits.is_empty(), self.quick) {
            (Experiment::PrecisionRecall, true, _) => vec![128],
            (Experiment::PrecisionRecall, false, _) => {
                self.bits.iter().max().copied().into_iter().collect()
            }
            (_, false, _) => self.bits.clone(),
            (Experiment::Streams, true, _) => vec![64],
            (Experiment::Bits, true, false) => vec![16, 32, 64, 96, 128],
            _ => vec![32, 64, 128],
        };
        bits.sort_unstable();
        bits.dedup();
        bits
    }

    /// Most rows of a base that MAP is measured on.
    pub(crate) fn most_base_rows(&self, dim: usize) -> u64 {
        let fit = MOST_BASE_BYTES / (4 * dim as u64);
        fit.min(if self.quick { 20_000 } else { 200_000 })
    }

    /// The names of the sets that an experiment on codes uses, in order: where only files are named, those; else the
    /// paper's sets or their stand-ins, and files.
    pub(crate) fn set_names(&self, purpose: Purpose) -> Result<Vec<String>> {
        let (files, folders): (Vec<&PathBuf>, Vec<&PathBuf>) =
            self.data.iter().partition(|path| path.is_file());
        let own = files.iter().map(|path| path.to_string_lossy().into_owned());
        if folders.is_empty() && !files.is_empty() {
            return Ok(own.collect());
        }
        let folders = self.folders();
        let mut names = Vec::new();
        for name in ["mnist", "cifar10-gist"] {
            if data::find(&folders, name)?.is_some() {
                names.push(name.to_owned());
            }
        }
        for name in ["gist1m", "flickr25600"] {
            // A quick look does not go through gigabytes.
            let real = !self.quick && data::find(&folders, name)?.is_some();
            names.push(if real { name.to_owned() } else { format!("{name}-stand-in") });
        }
        // Nor, with real sets at hand, at every made-up one.
        if self.quick && purpose == Purpose::Map && names.len() > 2 {
            names.retain(|name| name != "flickr25600-stand-in");
        }
        names.extend(own);
        Ok(names)
    }

    /// Opens a set by name.
    pub(crate) fn open(&self, name: &str, purpose: Purpose) -> Result<DataSet> {
        let stand_in = |rows, dim, decay, unit| {
            let base = StandIn::new(rows, dim, decay, unit, DATA_SEED);
            let queries: Box<dyn Source> = Box::new(base.queries(u64::from(self.queries())));
            DataSet { name: name.to_owned(), base: Box::new(base), queries: Some(queries) }
        };
        let (time, quick) = (purpose == Purpose::Time, self.quick);
        Ok(match name {
            "gist1m-stand-in" if quick => {
                stand_in(if time { 40_000 } else { 20_000 }, 960, 1.2, false)
            }
            "gist1m-stand-in" => stand_in(if time { 1_000_000 } else { 60_000 }, 960, 1.2, false),
            "flickr25600-stand-in" if quick => {
                stand_in(if time { 16_000 } else { 4_000 }, 4_096, 1.0, true)
            }
            "flickr25600-stand-in" => {
                stand_in(if time { 100_000 } else { 10_000 }, 25_600, 1.0, true)
            }
            _ => match data::find(&self.folders(), name)? {
                Some(set) => set,
                None => {
                    let path = PathBuf::from(name);
                    let stem = path.file_stem().map(|s| s.to_string_lossy().into_owned());
                    let base = Box::new(FileSource::open(&[path])?);
                    DataSet { name: stem.unwrap_or_else(|| name.into()), base, queries: None }
                }
            },
        })
    }

    fn folders(&self) -> Vec<PathBuf> {
        self.data.iter().filter(|path| !path.is_file()).cloned().collect()
    }
}
