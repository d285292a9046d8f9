//! Streams that change: what becomes of MAP when the model is kept, renewed, or renewed without encoding old rows again.
//!
//! Not in the paper, which encodes everything again after each round. A stream is cut into ten parts. All methods sketch
//! it with the SRHT (l = 2r), fit the library's default model with its factors, and rank by estimated distance.
//!
//! | method | |
//! |---|---|
//! | `frozen` | the model of the first part encodes everything |
//! | `encode all` | the model of all rows encodes everything; renewed after each part, each row is encoded 5.5 times |
//! | `mixed` | each part has codes of the model after it; all are searched with the last model, by Hamming distance |
//! | `versions` | each part has codes of the model after it, and is searched with that model ([`frosh::Index`]) |
//! | `when due` | the same in 20 parts, with a new version only if the sample says that it gains .04 of MAP |
//!
//! The queries are held out of the whole stream, and the truth is the nearest 2 % of all of it.

use super::Lab;
use crate::data::{Ground, Memory, Source};
use crate::error::{Error, Result};
use crate::random::Random;
use crate::results::Record;
use crate::settings::Experiment;
use crate::streams::{self, Stream};
use frosh::{
    Codes, Config, Drift, Evaluation, Hasher, Index, IndexWriter, Model, Ranking, Rows, Search,
    Sketcher, Truth,
};
use std::collections::HashSet;
use std::path::{Path, PathBuf};

const PARTS: usize = 10;
const FINE_PARTS: usize = 20;
/// Repeats of each stream at least, so that there is a spread.
const REPEATS: u32 = 3;
/// Queries that are ranked at a time: their hits are all rows.
const BATCH: usize = 32;
/// Sampled rows that a measurement of drift needs.
const MIN_SAMPLE: usize = 256;
/// Neighbours of the recall.
const K: usize = 10;

/// What a method came to.
struct Outcome {
    method: &'static str,
    map: f64,
    map_error: f64,
    recall: Option<f64>,
    /// Rows that were encoded, for each row of the stream.
    encoded: f64,
    versions: usize,
}

pub(super) fn run(lab: &mut Lab<'_>) -> Result<()> {
    let settings = lab.settings;
    if !streams::any(&settings.data)? {
        lab.tell("streams: no data set for them is there; name folders or files with --data");
        return Ok(());
    }
    let queries = u64::from(settings.queries());
    let most = (settings.most_base_rows(1) + queries) as usize;
    streams::each(&settings.data, most, settings.seed, &mut |_| {}, &mut |stream, _| {
        run_stream(lab, &held_out(stream, queries, settings.seed)?)
    })
}

/// Holds queries out of a stream, everywhere in it.
fn held_out(stream: &Stream, queries: u64, seed: u64) -> Result<Ground> {
    let rows = stream.rows() as u64;
    let mut random = Random::new(seed, 0x0071_7565_7279);
    let held: HashSet<u64> = random.choose(queries.min(rows / 2), rows).into_iter().collect();
    let (mut base, mut queries) = (Vec::new(), Vec::new());
    for (number, row) in (0..).zip(stream.values.chunks_exact(stream.dim)) {
        if held.contains(&number) { &mut queries } else { &mut base }.extend_from_slice(row);
    }
    let memory = |values| Memory::new(values, stream.dim);
    Ground::of(stream.name.clone(), memory(base), memory(queries))
}

fn run_stream(lab: &mut Lab<'_>, ground: &Ground) -> Result<()> {
    let (n, d) = (ground.base.rows(), ground.base.dim());
    for bits in lab.settings.bits(Experiment::Streams) {
        if bits > d {
            continue;
        }
        let name = format!("streams {} {bits} bits", ground.name);
        let limit = lab.settings.cell_seconds;
        let seeds: Vec<u64> = (0..lab.settings.repeats()).map(|r| lab.seed(r)).collect();
        let scratch = Scratch(lab.settings.out.join("streams.tmp"));
        lab.cell(&name, REPEATS, limit, |repeat| {
            let task = Task { ground, bits, seed: seeds[repeat as usize] };
            let record = |outcome: Outcome| Record {
                experiment: "streams".into(),
                data: ground.name.clone(),
                method: outcome.method.into(),
                rows: n,
                dim: d as u64,
                sketch_rows: Some(2 * bits as u64),
                bits: Some(bits as u32),
                repeat,
                map: Some(outcome.map),
                map_error: Some(outcome.map_error),
                recall: outcome.recall,
                encoded: Some(outcome.encoded),
                versions: Some(outcome.versions as u32),
                ..Record::default()
            };
            Ok(task.run(&scratch)?.into_iter().map(record).collect())
        })?;
    }
    Ok(())
}

/// A folder for indexes, which is removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    /// An empty folder.
    fn folder(&self) -> Result<&Path> {
        if self.0.exists() {
            std::fs::remove_dir_all(&self.0).map_err(Error::io(&self.0))?;
        }
        Ok(&self.0)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Task<'a> {
    ground: &'a Ground,
    bits: usize,
    seed: u64,
}

impl Task<'_> {
    fn run(&self, scratch: &Scratch) -> Result<Vec<Outcome>> {
        let base = &self.ground.base;
        let mut sketcher = self.sketcher()?;
        let mut models: Vec<Hasher> = Vec::new();
        for part in 0..PARTS {
            sketcher.push(Rows::new(base.part(part, PARTS), base.dim())?)?;
            models.push(sketcher.sketch().hasher(self.bits)?);
        }
        let (first, last) = (&models[0], &models[PARTS - 1]);
        let again = (1..=PARTS).sum::<usize>() as f64 / PARTS as f64;
        let mut outcomes = Vec::new();
        for (method, model, encoded) in [("frozen", first, 1.0), ("encode all", last, again)] {
            let mut writer = IndexWriter::create(scratch.folder()?, model, true, None)?;
            let mut new = writer.add();
            new.push(base.view()?)?;
            new.commit()?;
            outcomes.push(self.measure(method, writer.index(), encoded)?);
        }
        outcomes.push(self.mixed(&models)?);
        outcomes.push(self.versions(scratch, &models)?);
        outcomes.push(self.when_due(scratch)?);
        Ok(outcomes)
    }

    fn sketcher(&self) -> Result<Sketcher> {
        let config = Config::new(self.ground.base.dim()).sketch_rows(2 * self.bits);
        Ok(Sketcher::new(config.seed(self.seed))?)
    }

    /// Codes of different models as if they were of the last one.
    fn mixed(&self, models: &[Hasher]) -> Result<Outcome> {
        let (base, last) = (&self.ground.base, &models[PARTS - 1]);
        let mut bytes = Vec::new();
        for (part, model) in models.iter().enumerate() {
            let rows = Rows::new(base.part(part, PARTS), base.dim())?;
            bytes.extend_from_slice(model.encode(rows)?.as_bytes());
        }
        let codes = Codes::from_packed(last.id(), self.bits, bytes)?;
        let queries = last.encode(self.ground.queries.view()?)?;
        let result: Evaluation = self.ground.measure(&queries, &codes)?;
        let precisions: Vec<f64> = (0..result.queries())
            .map(|query| result.tally(query).average_precision().unwrap_or(0.0))
            .collect();
        let (map, map_error) = mean(&precisions);
        let (method, recall, versions) = ("mixed", result.recall(K), PARTS);
        Ok(Outcome { method, map, map_error, recall, encoded: 1.0, versions })
    }

    /// A new version after each part. Rows are encoded when they come, and again by the version that follows.
    fn versions(&self, scratch: &Scratch, models: &[Hasher]) -> Result<Outcome> {
        let base = &self.ground.base;
        let mut writer = IndexWriter::create(scratch.folder()?, &models[0], true, None)?;
        let (mut encoded, mut first) = (0, 0u64);
        for (part, model) in models.iter().enumerate() {
            let rows = Rows::new(base.part(part, PARTS), base.dim())?;
            let mut new = writer.add();
            new.push(rows)?;
            new.commit()?;
            encoded += rows.len() as u64;
            if part > 0 {
                let ids: Vec<u64> = (first..first + rows.len() as u64).collect();
                let mut again = writer.refresh(model)?;
                again.push_with_ids(rows, &ids)?;
                encoded += again.commit()?;
            }
            first += rows.len() as u64;
        }
        self.measure("versions", writer.index(), encoded as f64 / base.rows() as f64)
    }

    /// A new version only if the sample says so.
    fn when_due(&self, scratch: &Scratch) -> Result<Outcome> {
        let (base, dim) = (&self.ground.base, self.ground.base.dim());
        let mut sketcher = self.sketcher()?;
        sketcher.push(Rows::new(base.part(0, FINE_PARTS), dim)?)?;
        let model = sketcher.sketch().hasher(self.bits)?;
        let mut writer = IndexWriter::create(scratch.folder()?, &model, true, None)?;
        // The row after the last one that was there when the newest version was made.
        let (mut encoded, mut end, mut settled) = (0, 0usize, 0usize);
        for part in 0..FINE_PARTS {
            let rows = Rows::new(base.part(part, FINE_PARTS), dim)?;
            let mut new = writer.add();
            new.push(rows)?;
            new.commit()?;
            end += rows.len();
            encoded += rows.len() as u64;
            if part == 0 {
                settled = end;
                continue;
            }
            sketcher.push(rows)?;
            let (newest, sketch): (Model, _) = (writer.index().model().clone(), sketcher.sketch());
            if sketch.reservoir_rows() < MIN_SAMPLE {
                continue;
            }
            let measured = frosh::drift(&newest, &sketch, Ranking::Estimated)?;
            if measured.is_due(Drift::DEFAULT_GAP) {
                let maps = [
                    (newest.id(), measured.map),
                    (measured.candidate.id(), measured.refreshed_map),
                ];
                let mut again = writer.refresh(&measured.candidate)?.measured(maps);
                let ids: Vec<u64> = (settled as u64..end as u64).collect();
                again.push_with_ids(base.view()?.slice(settled..end), &ids)?;
                encoded += again.commit()?;
                settled = end;
            }
        }
        self.measure("when due", writer.index(), encoded as f64 / base.rows() as f64)
    }

    /// Ranks all rows for each query by estimated distance.
    fn measure(&self, method: &'static str, index: &Index, encoded: f64) -> Result<Outcome> {
        let (queries, near) = (self.ground.queries.view()?, self.ground.near());
        let n = self.ground.base.rows() as usize;
        let relevant = Truth::TopShare(0.02).count(n);
        let search = Search::nearest(n).ranking(Ranking::Estimated);
        let (mut precisions, mut found) = (Vec::new(), 0);
        for from in (0..queries.len()).step_by(BATCH) {
            let batch = from..queries.len().min(from + BATCH);
            let hits = index.search(queries.slice(batch.clone()), &search)?;
            for (hits, near) in hits.iter().zip(&near[batch]) {
                let mut is_near = vec![false; n];
                near[..relevant].iter().for_each(|id| is_near[*id as usize] = true);
                let (mut seen, mut sum) = (0, 0.0);
                for (rank, hit) in hits.iter().enumerate() {
                    if is_near[hit.id as usize] {
                        seen += 1;
                        sum += f64::from(seen) / (rank + 1) as f64;
                    }
                }
                precisions.push(sum / relevant as f64);
                let first = &near[..K.min(near.len())];
                found += hits[..K.min(n)].iter().filter(|hit| first.contains(&hit.id)).count();
            }
        }
        let (map, map_error) = mean(&precisions);
        let recall = Some(found as f64 / (K * precisions.len()) as f64);
        Ok(Outcome { method, map, map_error, recall, encoded, versions: index.versions().len() })
    }
}

/// The mean and its standard error.
fn mean(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares = values.iter().map(|x| (x - mean).powi(2)).sum::<f64>();
    (mean, (squares / (n * (n - 1.0).max(1.0))).sqrt())
}
