//! What a search is asked: the queries, how many neighbours or how near, among which; and printing what it found.
//! What `search` and `index search` share.

use crate::args::{Common, Reading};
use crate::kinds;
use crate::output::{complain, print};
use crate::progress::Progress;
use crate::skipping::{Skipping, count_of};
use crate::verbs::encode::check_dim;
use anyhow::{Result, bail};
use clap::Args;
use frosh::{Hit, IdSet, Model, Ranking, Search};
use frosh_io::{Batch, IdRule, IdType, Ids, Vectors, read_ids, visible};
use serde_json::json;
use std::ffi::OsString;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// What is asked.
#[derive(Args)]
pub(crate) struct QueryArgs {
    /// Files, folders or patterns of query vectors
    #[arg(long, required = true, num_args = 1.., value_name = "DATA")]
    queries: Vec<OsString>,
    /// Neighbours for each query
    #[arg(short, default_value_t = 10, value_name = "K",
          value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) k: u32,
    /// All codes that differ from the query's in at most so many bits, instead of the nearest k
    #[arg(long, value_name = "BITS", conflicts_with_all = ["k", "rank"])]
    pub(crate) radius: Option<u32>,
    /// Search only the N best cells of 256 for each query: faster, and may miss neighbours (codes of a quantiser)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256), conflicts_with = "radius")]
    probe: Option<u16>,
    /// Find only these ids: a file with one a line, a .npy array of integers or text, or the column of a table
    #[arg(long, value_name = "FILE")]
    only: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) reading: Reading,
    #[command(flatten)]
    pub(crate) skipping: Skipping,
}

/// What was read for a search.
pub(crate) struct Asked {
    /// The query vectors, row after row.
    pub(crate) values: Vec<f64>,
    /// Numbers of query rows that could not be used, ascending.
    pub(crate) left_out: Vec<Range<u64>>,
    /// The ids that may be found.
    pub(crate) only: Option<Ids>,
}

impl QueryArgs {
    /// Reads the queries for this model, which is in the file or folder `whose`. `kind` is the type of the ids there.
    pub(crate) fn read(
        &self,
        model: &Model,
        whose: &Path,
        kind: Option<IdType>,
        common: &Common,
    ) -> Result<Asked> {
        let vectors = kinds::vectors(&self.queries, &self.reading.options(self.skipping.skip_bad))?;
        check_dim(model, whose, &vectors)?;
        let rule = IdRule { convert: None, untyped: kind };
        let only = self.only.as_deref().map(|path| read_ids(path, None, rule)).transpose()?;
        let mut progress = Progress::new("queries", vectors.rows(), 0, common.quiet);
        let mut skipped = self.skipping.start(vectors.files().iter().map(|file| &*file.path))?;
        let (values, left_out) = read_all(&vectors, &mut progress, |_| Ok(()))?;
        drop(progress);
        skipped.add(&left_out)?;
        let line = skipped.finish()?.line(" as a query");
        if !common.quiet && !line.is_empty() {
            complain(line.trim_end());
        }
        Ok(Asked { values, left_out, only })
    }

    /// The search for `k` neighbours, or within a radius, that the options describe.
    pub(crate) fn search<'a>(
        &self,
        k: usize,
        rank: Option<Ranking>,
        only: Option<&'a IdSet>,
    ) -> Search<'a> {
        let search = self.radius.map_or_else(|| Search::nearest(k), Search::within);
        let search = rank.into_iter().fold(search, Search::ranking);
        let search = self.probe.into_iter().fold(search, |search, n| search.probe(n.into()));
        only.into_iter().fold(search, Search::filter)
    }
}

/// Prints hits: one line for each query (JSON) or for each hit (text). `whole` distances are numbers of bits. Queries
/// that were left out found nothing, and the others keep their numbers. `name` gives the name of an id, if ids are text.
pub(crate) fn print_hits<'a>(
    common: &Common,
    found: &[Vec<Hit>],
    left_out: &[Range<u64>],
    whole: bool,
    name: impl Fn(u64) -> Result<Option<&'a str>>,
) -> Result<()> {
    let mut text = String::new();
    if !common.json {
        text += "query\trank\tid\tdistance\n";
    }
    let all = 0..found.len() as u64 + count_of(left_out);
    let (mut found, mut left_out) = (found.iter(), left_out.iter().cloned().flatten().peekable());
    for query in all {
        if left_out.next_if_eq(&query).is_some() {
            if common.json {
                let nothing = json!({"query": query, "ids": [], "distances": [], "left_out": true});
                text += &format!("{nothing}\n");
            }
            continue;
        }
        let Some(hits) = found.next() else { break };
        if common.json {
            let mut ids = Vec::with_capacity(hits.len());
            for hit in hits {
                ids.push(name(hit.id)?.map_or_else(|| json!(hit.id), |name| json!(name)));
            }
            let distance =
                |hit: &Hit| if whole { json!(hit.distance as u64) } else { json!(hit.distance) };
            let distances: Vec<_> = hits.iter().map(distance).collect();
            text += &format!("{}\n", json!({"query": query, "ids": ids, "distances": distances}));
        } else {
            for (rank, hit) in hits.iter().enumerate() {
                let Hit { id, distance } = hit;
                let id = name(*id)?.map_or_else(|| id.to_string(), visible);
                text += &format!("{query}\t{}\t{id}\t{}\n", rank + 1, *distance as f32);
            }
        }
        if text.len() > 1 << 16 {
            print(&text)?;
            text.clear();
        }
    }
    print(&text)
}

/// All values of some vectors, and the numbers of the rows that were left out. `look` sees each batch.
pub(crate) fn read_all(
    vectors: &Vectors,
    progress: &mut Progress,
    mut look: impl FnMut(&Batch) -> Result<()>,
) -> Result<(Vec<f64>, Vec<Range<u64>>)> {
    let mut values = Vec::new();
    let mut batches = vectors.batches();
    while let Some(batch) = batches.next()? {
        batch.check()?;
        look(batch)?;
        values.extend(batch.values().to_f64());
        progress.add(batch.len());
    }
    if values.is_empty() {
        let every = if batches.left_out() > 0 { " that can be used" } else { "" };
        bail!("{} has no rows{every}", vectors.files()[0].path.display());
    }
    Ok((values, batches.take_left_out()))
}
