//! What the experiments measured: flat records, one for each cell of a figure and each repeat.
//!
//! A record is known by everything in it that was chosen; what was measured stands in the fields at its end.
//! An experiment that is resumed leaves out the records that are there.

use serde::{Deserialize, Serialize};

/// One measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Record {
    /// The experiment: `sketch` (Figures 2 and 3), `rounds` (4), `bits` (5), `precision-recall` (6), `train-time`
    /// (Table 2, without a learned rotation), `whole-training` (with the one that MAP is measured with) or `streams`
    /// (not in the paper).
    pub experiment: String,
    /// The data set: `synthetic`, `mnist`, `cifar10-gist`, `gist1m`, `flickr25600`, a file's name. Made-up data that
    /// stands in for a set has `-stand-in` at the end of its name.
    pub data: String,
    /// The method: `FD`, `FFD`, `LSH`, `OSH`, `FROSH`, `DFROSH`, `SGH`, `OCH-style`, `PCA`, `PCA-RR`, `PCA-ITQ`;
    /// for `streams`: `frozen`, `encode all`, `mixed`, `versions`, `when due`.
    pub method: String,
    /// For `sketch`: what is varied, `l`, `n` or `d`.
    pub sweep: Option<String>,
    /// Rows learned from.
    pub rows: u64,
    /// Dimensions.
    pub dim: u64,
    /// Rows of the sketch, l.
    pub sketch_rows: Option<u64>,
    /// Rows of a block, m.
    pub block_rows: Option<u64>,
    /// m as a multiple of d, where the experiment varies it.
    pub tau: Option<u32>,
    /// Bits of a code, r.
    pub bits: Option<u32>,
    /// After which of ten rounds.
    pub round: Option<u32>,
    /// Which repeat, from 0: its number is part of the seed.
    pub repeat: u32,
    /// Measured: |A'A - B'B|_2 / |A|_F^2.
    pub relative_error: Option<f64>,
    /// Measured: seconds of learning on one thread, without making or reading data.
    pub seconds: Option<f64>,
    /// Measured: mean average precision, truth the nearest 2 %, ties in expectation.
    pub map: Option<f64>,
    /// Measured: standard error of the mean average precision over queries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub map_error: Option<f64>,
    /// Measured: recall@10.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recall: Option<f64>,
    /// Measured: rows that were encoded, for each row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encoded: Option<f64>,
    /// Measured: versions of the model at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub versions: Option<u32>,
    /// Measured: (rows returned, recall, precision), means over queries, ties in expectation.
    pub returned: Option<Vec<[f64; 3]>>,
}

impl Record {
    /// Everything that was chosen but the repeat, as text: the same for all repeats of a cell.
    pub(crate) fn chosen(&self) -> String {
        let chosen = (&self.experiment, &self.data, &self.method, &self.sweep, self.rows, self.dim);
        let sizes = (self.sketch_rows, self.block_rows, self.tau, self.bits, self.round);
        format!("{chosen:?} {sizes:?}")
    }
}

/// The machine that measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// Its processor.
    pub cpu: String,
    /// Its cores.
    pub cores: usize,
    /// Its memory in bytes.
    pub memory: u64,
    /// The operating system.
    pub system: String,
}

/// What was run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Run {
    /// The command that does it again.
    pub command: String,
    /// The version of frosh.
    pub version: String,
    /// Whether sizes were reduced below the paper's.
    pub quick: bool,
    /// Whether codes were made without any rotation, as Algorithm 1 is printed.
    pub no_rotation: bool,
    /// Repeats of each cell, at most.
    pub repeats: u32,
    /// Queries of each evaluation.
    pub queries: u32,
    /// Seconds that it took so far.
    pub seconds: f64,
    /// The machine.
    pub machine: Machine,
}

/// Everything that a page is made from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Results {
    /// What was run.
    pub run: Run,
    /// What was measured.
    pub records: Vec<Record>,
}

impl Results {
    /// Whether streams that change are all that was measured: then nothing of the paper was, and its claims say nothing.
    pub fn only_streams(&self) -> bool {
        !self.records.is_empty() && self.records.iter().all(|r| r.experiment == "streams")
    }
}
