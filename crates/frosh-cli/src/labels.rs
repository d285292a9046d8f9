//! Class labels in place of exact neighbours, for `eval`: a row is relevant if it has the query's label.

use crate::eval_set::EvalSet;
use crate::skipping::count_of;
use anyhow::{Result, bail};
use clap::Args;
use frosh_io::{Batch, IdRule, IdType, Ids, read_ids};
use std::collections::HashMap;
use std::ops::Range;
use std::path::PathBuf;

/// Where labels come from.
#[derive(Args)]
#[command(next_help_heading = "Class labels")]
pub(crate) struct LabelArgs {
    /// Labels of the base, one for each row: numbers or names, one a line, as .npy or idx, or a column (see
    /// --label-column) of Parquet, Arrow, CSV or JSON Lines. Rows of the query's label are then relevant, and precision@k
    /// takes the place of recall@k
    #[arg(long, num_args = 1.., value_name = "FILE", conflicts_with_all = ["truth", "oversample"])]
    labels: Vec<PathBuf>,
    /// Column of the labels in the files of the base and of --queries; with --labels, in those files
    #[arg(long, value_name = "NAME", conflicts_with_all = ["truth", "oversample"])]
    label_column: Option<String>,
    /// Labels of --queries, one for each
    #[arg(long, num_args = 1.., value_name = "FILE", requires_all = ["labels", "queries"])]
    query_labels: Vec<PathBuf>,
}

/// Numbers of class names. Whole numbers are the same class however they are written.
#[derive(Default)]
pub(crate) struct Classes(HashMap<String, u32>);

impl Classes {
    fn number(&mut self, label: &str) -> u32 {
        let label = label.parse::<i128>().map_or_else(|_| label.to_owned(), |n| n.to_string());
        let next = self.0.len() as u32;
        *self.0.entry(label).or_insert(next)
    }

    /// The classes of the rows of a batch that was read with a column of labels.
    pub(crate) fn of_batch(&mut self, batch: &Batch) -> Vec<u32> {
        match batch.ids() {
            Some(Ids::Names(names)) => names.iter().map(|name| self.number(name)).collect(),
            Some(Ids::Numbers(numbers)) => {
                numbers.iter().map(|number| self.number(&number.to_string())).collect()
            }
            None => Vec::new(),
        }
    }
}

/// Labels are compared as text.
pub(crate) const RULE: IdRule = IdRule { convert: Some(IdType::Text), untyped: None };

/// Labels of a base without the rows held out, and of the queries; equal numbers for equal labels.
pub(crate) struct Labels {
    pub(crate) base: Vec<u32>,
    pub(crate) queries: Vec<u32>,
}

impl LabelArgs {
    /// Reads the labels for this evaluation set; nothing where none are asked for.
    pub(crate) fn open(&self, eval_set: &EvalSet) -> Result<Option<Labels>> {
        if self.labels.is_empty() {
            return Ok(eval_set.labels().map(|(base, of_queries)| {
                let held = eval_set.held();
                let of_held = || held.iter().filter_map(|id| base.get(*id as usize)).copied();
                let queries =
                    if held.is_empty() { of_queries.to_vec() } else { of_held().collect() };
                let kept = base.iter().zip(0u64..).filter(|(_, id)| !held.contains(id));
                Labels { base: kept.map(|(label, _)| *label).collect(), queries }
            }));
        }
        let (mut classes, column) = (Classes::default(), self.label_column.as_deref());
        let mut base = read(&self.labels, column, &mut classes)?;
        let left_out = eval_set.left_out();
        if let Some(last) = left_out.last().filter(|last| last.end > base.len() as u64) {
            let (names, got) = (names(&self.labels), base.len());
            bail!(
                "{names}: {got} labels, expected at least {}, one for each row of the base",
                last.end
            );
        }
        // Labels are given for all rows, those that are left out too.
        remove(&mut base, left_out);
        // A base that does not tell its rows was counted where rows are held out.
        if let Some(rows) = eval_set.rows() {
            check(&self.labels, base.len(), rows, "the base")?;
        }
        let held = eval_set.held();
        let of_queries = match (held.is_empty(), self.query_labels.is_empty()) {
            (true, false) => {
                let mut labels = read(&self.query_labels, column, &mut classes)?;
                let left_out = eval_set.left_out_queries();
                let queries = eval_set.queries()?.len() as u64 + count_of(left_out);
                check(&self.query_labels, labels.len(), queries, "--queries")?;
                remove(&mut labels, left_out);
                labels
            }
            (true, true) => bail!("with --labels and --queries, --query-labels is needed too"),
            (false, _) => held.iter().filter_map(|id| base.get(*id as usize)).copied().collect(),
        };
        let kept = base.iter().zip(0u64..).filter(|(_, id)| !held.contains(id));
        let base = kept.map(|(label, _)| *label).collect();
        Ok(Some(Labels { base, queries: of_queries }))
    }

    /// The column of the labels in the files of the base.
    pub(crate) fn data_column(&self) -> Option<&str> {
        self.label_column.as_deref().filter(|_| self.labels.is_empty())
    }

    /// Compares the labels with the rows of the base once those are known for certain.
    pub(crate) fn check(&self, labels: &Labels, eval_set: &EvalSet, rows: usize) -> Result<()> {
        if self.labels.is_empty() {
            return Ok(());
        }
        let beside = eval_set.held().len() + count_of(eval_set.left_out()) as usize;
        check(&self.labels, labels.base.len() + beside, (rows + beside) as u64, "the base")
    }
}

fn read(files: &[PathBuf], column: Option<&str>, classes: &mut Classes) -> Result<Vec<u32>> {
    let mut all = Vec::new();
    for file in files {
        match read_ids(file, column, RULE)? {
            Ids::Names(names) => all.extend(names.iter().map(|name| classes.number(name))),
            Ids::Numbers(numbers) => {
                all.extend(numbers.iter().map(|number| classes.number(&number.to_string())));
            }
        }
    }
    Ok(all)
}

fn check(files: &[PathBuf], got: usize, rows: u64, whose: &str) -> Result<()> {
    if got as u64 != rows {
        let names = names(files);
        bail!("{names}: {got} labels, expected {rows}, one for each row of {whose}");
    }
    Ok(())
}

fn names(files: &[PathBuf]) -> String {
    let names: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    names.join(", ")
}

/// Removes the labels of rows, whose numbers ascend.
fn remove(labels: &mut Vec<u32>, rows: &[Range<u64>]) {
    let (mut rows, mut row) = (rows.iter().cloned().flatten().peekable(), 0u64);
    labels.retain(|_| {
        row += 1;
        rows.next_if_eq(&(row - 1)).is_none()
    });
}
