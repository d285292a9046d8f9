//! The set that models are measured on: a base, queries that are not in it, and their exact neighbours.
//! What `eval` and `calibrate` share.

use crate::args::{Common, Reading};
use crate::labels::{self, Classes};
use crate::pieces::{self, Give};
use crate::progress::Progress;
use crate::query_args::read_all;
use crate::skipping::{LeftOut, Skipping, count_of};
use crate::verbs::encode::encode;
use anyhow::{Result, bail};
use clap::Args;
use frosh::{Codes, ExactSearch, Metric, Model, Ranking, Rows};
use frosh_io::{Batch, Options, RangeReader, Vectors};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::ops::Range;

/// Rows held out as queries where nothing else is said.
const HELD_OUT: u64 = 300;

/// What is measured on.
#[derive(Args)]
pub(crate) struct EvalSetArgs {
    /// Files, folders or patterns of the vectors to be searched
    #[arg(long, required = true, num_args = 1.., value_name = "DATA")]
    base: Vec<OsString>,
    /// Query vectors; without them, some rows of the base are held out
    #[arg(long, num_args = 1.., value_name = "DATA", conflicts_with = "held_out")]
    queries: Vec<OsString>,
    /// Rows of the base to hold out as queries; 300 where there are enough
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    held_out: Option<u32>,
    /// Seed of the choice of held-out rows
    #[arg(long, default_value_t = 0, value_name = "N")]
    seed: u64,
    #[command(flatten)]
    reading: Reading,
    #[command(flatten)]
    skipping: Skipping,
}

/// Base and queries.
pub(crate) struct EvalSet {
    base: Vectors,
    /// Rows that are queries, counted among the rows of the base that can be used.
    held: BTreeSet<u64>,
    queries: Vec<f64>,
    /// Rows of the base that cannot be used, by their numbers, and of the queries.
    left_out: Vec<Range<u64>>,
    left_out_queries: Vec<Range<u64>>,
    /// Classes of the rows of the base that can be used, and of the queries, if labels are in a column of the data.
    labels: Option<(Vec<u32>, Vec<u32>)>,
    /// What the report says of them.
    pub(crate) skipped: LeftOut,
    quiet: bool,
}

impl EvalSetArgs {
    /// Opens the base and reads the queries, which must have `dim` dimensions, as `whose` has. `label` is the column of
    /// their labels.
    pub(crate) fn open(
        &self,
        dim: usize,
        whose: &str,
        label: Option<&str>,
        common: &Common,
    ) -> Result<EvalSet> {
        let open = |data: &[OsString], label: Option<&str>| -> Result<Vectors> {
            let options = Options {
                id_column: label.map(str::to_owned),
                id_rule: labels::RULE,
                ..self.reading.options(self.skipping.skip_bad)
            };
            let vectors = crate::kinds::vectors(data, &options)?;
            if vectors.dim() != dim {
                bail!(
                    "{whose} is for {dim} dimensions, but {} has {}",
                    vectors.files()[0].path.display(),
                    vectors.dim()
                );
            }
            Ok(vectors)
        };
        let base = open(&self.base, None)?;
        let mut classes = Classes::default();
        if base.files().iter().any(|file| !file.rereadable) {
            bail!(
                "{}: the base is read twice, so it cannot be a stream: save it as a file first",
                base.files()[0].path.display()
            );
        }
        let quiet = common.quiet;
        let mut skipped = self.skipping.start(base.files().iter().map(|file| &*file.path))?;
        // Which rows can be used is known only after reading them, and needed before: for labels.
        let count = label.is_some()
            || self.skipping.skip_bad
            || (self.queries.is_empty() && base.rows().is_none());
        let (mut rows, mut left_out) = (base.rows().unwrap_or(0), Vec::new());
        let mut of_base = Vec::new();
        if count {
            rows = 0;
            let labelled = label.map(|_| open(&self.base, label)).transpose()?;
            let mut batches = labelled.as_ref().unwrap_or(&base).batches();
            while let Some(batch) = batches.next()? {
                rows += batch.len() as u64;
                of_base.extend(classes.of_batch(batch));
            }
            left_out = batches.take_left_out();
        }
        skipped.add(&left_out)?;
        let skipped = skipped.finish()?;
        if !self.queries.is_empty() {
            let queries = open(&self.queries, label)?;
            let mut of_queries = Vec::new();
            let mut progress = Progress::new("queries", queries.rows(), 0, quiet);
            let (queries, left_out_queries) = read_all(&queries, &mut progress, |batch| {
                of_queries.extend(classes.of_batch(batch));
                Ok(())
            })?;
            let (held, labels) = (BTreeSet::new(), label.map(|_| (of_base, of_queries)));
            return Ok(EvalSet {
                base,
                held,
                queries,
                left_out,
                left_out_queries,
                labels,
                skipped,
                quiet,
            });
        }
        let wanted = self.held_out.map_or((rows / 2).min(HELD_OUT), u64::from);
        if wanted == 0 || wanted > rows / 2 {
            bail!(
                "{}: cannot hold out {wanted} of {rows} rows as queries, at most half: see --held-out",
                base.files()[0].path.display()
            );
        }
        let mut held = BTreeSet::new();
        for draw in 0u64.. {
            if held.len() as u64 == wanted {
                break;
            }
            let bytes = [self.seed.to_le_bytes(), draw.to_le_bytes()].concat();
            held.insert(xxhash_rust::xxh3::xxh3_64(&bytes) % rows);
        }
        // From their places among the rows that can be used to their numbers.
        let mut before = left_out.iter().cloned().flatten().peekable();
        let mut passed = 0;
        let mut number = |place: u64| {
            while before.next_if(|row| *row <= place + passed).is_some() {
                passed += 1;
            }
            place + passed
        };
        let ids: Vec<u64> = held.iter().map(|place| number(*place)).collect();
        let mut queries = Vec::with_capacity(ids.len() * base.dim());
        base.visit(&ids, |_, row| queries.extend_from_slice(row))?;
        let (left_out_queries, labels) = (Vec::new(), label.map(|_| (of_base, Vec::new())));
        Ok(EvalSet { base, held, queries, left_out, left_out_queries, labels, skipped, quiet })
    }
}

impl EvalSet {
    /// The queries.
    pub(crate) fn queries(&self) -> Result<Rows<'_, f64>> {
        Ok(Rows::new(&self.queries, self.base.dim())?)
    }

    /// Rows of the base, those held out too, where they are known before it is read.
    pub(crate) fn rows(&self) -> Option<u64> {
        self.base.rows()
    }

    /// Classes of the rows of the base that can be used, and of the queries, if labels are in a column of the data.
    pub(crate) fn labels(&self) -> Option<(&[u32], &[u32])> {
        self.labels.as_ref().map(|(base, queries)| (&base[..], &queries[..]))
    }

    /// Numbers of the rows of the base that cannot be used.
    pub(crate) fn left_out(&self) -> &[Range<u64>] {
        &self.left_out
    }

    /// Numbers of the queries that cannot be used.
    pub(crate) fn left_out_queries(&self) -> &[Range<u64>] {
        &self.left_out_queries
    }

    /// Lines for a report, on what cannot be used.
    pub(crate) fn left_out_lines(&self) -> String {
        let mut text = self.skipped.line(" in the base");
        match count_of(&self.left_out_queries) {
            0 => {}
            1 => text += "1 query could not be used\n",
            queries => text += &format!("{queries} queries could not be used\n"),
        }
        text
    }

    /// Rows of the base that are queries, counted among those that can be used; the queries are in this order. None if
    /// they have files of their own.
    pub(crate) fn held(&self) -> &BTreeSet<u64> {
        &self.held
    }

    /// The codes of the base.
    pub(crate) fn encode(&self, model: &Model, factors: bool) -> Result<Codes> {
        let mut codes: Option<Codes> = None;
        let mut add = |more: Codes| -> Result<()> {
            match &mut codes {
                None => codes = Some(more),
                Some(all) => all.append(&more)?,
            }
            Ok(())
        };
        // Where bad rows are left out, the place of a row among the good ones is known only after reading those before it.
        if pieces::can(&self.base) && self.base.rows().is_some() {
            let mut progress = Progress::new("encoding", self.base.rows(), 0, self.quiet);
            let work = |reader: &mut RangeReader, give: Give<'_, Codes>| {
                while let Some(batch) = reader.next()? {
                    let first = batch.runs().first().map_or(0, |run| run.1);
                    let kept = self.without_held(batch, first)?;
                    let batch = kept.as_ref().unwrap_or(batch);
                    if !batch.is_empty() {
                        let codes = encode(model, batch, factors)?;
                        let bytes = codes.len() * codes.stored_bytes_per_row();
                        give(codes, bytes)?;
                    }
                }
                Ok(())
            };
            pieces::in_order(&self.base, work, |more: Codes| {
                progress.add(more.len());
                add(more)
            })?;
        } else {
            self.each("encoding", |batch| add(encode(model, batch, factors)?))?;
        }
        match codes {
            Some(codes) => Ok(codes),
            None => bail!(
                "{}: the base has no rows beside the queries",
                self.base.files()[0].path.display()
            ),
        }
    }

    /// The `k` exact nearest rows of each query, nearest first.
    pub(crate) fn nearest(&self, k: usize, metric: Metric) -> Result<Vec<Vec<u64>>> {
        let mut exact = ExactSearch::new(self.queries()?, k, metric)?;
        self.each("exact search", |batch| Ok(batch.feed(&mut exact)?))?;
        Ok(exact.finish().iter().map(|found| found.iter().map(|f| f.id).collect()).collect())
    }

    /// Goes through the rows of the base but those held out.
    fn each(&self, what: &str, mut take: impl FnMut(&Batch) -> Result<()>) -> Result<()> {
        let mut progress = Progress::new(what, self.base.rows(), 0, self.quiet);
        let mut batches = self.base.batches();
        let mut at = 0u64;
        while let Some(batch) = batches.next()? {
            let kept = self.without_held(batch, at)?;
            let rest = kept.as_ref().unwrap_or(batch);
            if !rest.is_empty() {
                take(rest)?;
            }
            progress.add(batch.len());
            at += batch.len() as u64;
        }
        Ok(())
    }

    /// The batch without rows that are queries; `None` if it has none of them. `first` is the place of its first row.
    fn without_held(&self, batch: &Batch, first: u64) -> Result<Option<Batch>> {
        let end = first + batch.len() as u64;
        let mut inside = self.held.range(first..end).map(|id| (id - first) as usize).peekable();
        if inside.peek().is_none() {
            return Ok(None);
        }
        // Before rows are removed, so that an error names the right row.
        batch.check()?;
        Ok(Some(batch.without(inside)))
    }
}

/// The rankings to measure: those asked for, or every one that the model can.
pub(crate) fn rankings(asked: &[Ranking], model: &Model) -> Vec<Ranking> {
    if !asked.is_empty() {
        return asked.to_vec();
    }
    if model.hasher().is_none() {
        return vec![Ranking::Estimated];
    }
    let mut all = vec![Ranking::Hamming, Ranking::Asymmetric];
    all.extend(model.has_factors().then_some(Ranking::Estimated));
    all
}
