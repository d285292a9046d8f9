//! The experiments of the paper, one file for each, and what they share: cells that are repeated.
//!
//! A cell is what a figure draws as one point or one line; it is repeated with other seeds until it was repeated often
//! enough or its time is over. Evaluations use every core; whatever is timed runs on one.

mod codes;
mod rounds;
mod sketch;
mod streams;
mod train_time;

use crate::data::Ground;
use crate::error::Result;
use crate::methods::Task;
use crate::results::{Record, Results};
use crate::settings::{Experiment, Purpose, Settings};
use crate::store::Store;
use std::time::Instant;

/// A run of the lab.
pub(crate) struct Lab<'a> {
    settings: &'a Settings,
    store: Store,
    progress: &'a mut dyn FnMut(&str),
}

/// Runs experiments; `progress` is told of every cell that is done.
pub fn run(
    settings: &Settings,
    experiments: &[Experiment],
    progress: &mut dyn FnMut(&str),
) -> Result<Results> {
    let mut lab = Lab { settings, store: Store::open(settings)?, progress };
    let wants = |experiment| experiments.contains(&experiment);
    if wants(Experiment::Sketch) {
        sketch::run(&mut lab)?;
    }
    let codes = (wants(Experiment::Bits), wants(Experiment::PrecisionRecall));
    if wants(Experiment::Rounds) || codes.0 || codes.1 {
        // One set at a time: base, queries and truth are kept in memory for all experiments on it.
        for name in settings.set_names(Purpose::Map)? {
            let set = settings.open(&name, Purpose::Map)?;
            let most = settings.most_base_rows(set.base.dim());
            let start = Instant::now();
            let ground = Ground::new(&set, most, settings.queries().into(), settings.seed)?;
            lab.tell(&format!(
                "{}: {} rows, {} queries, exact neighbours in {:.1} s",
                set.name,
                crate::data::Source::rows(&ground.base),
                crate::data::Source::rows(&ground.queries),
                start.elapsed().as_secs_f64()
            ));
            if wants(Experiment::Rounds) {
                rounds::run(&mut lab, &ground)?;
            }
            if codes.0 || codes.1 {
                codes::run(&mut lab, &ground, codes)?;
            }
        }
    }
    if wants(Experiment::TrainTime) {
        train_time::run(&mut lab)?;
    }
    if wants(Experiment::Streams) {
        streams::run(&mut lab)?;
    }
    lab.store.save()?;
    crate::publish(lab.store.results(), &settings.out)?;
    Ok(lab.store.results().clone())
}

impl Lab<'_> {
    fn tell(&mut self, line: &str) {
        (self.progress)(line);
    }

    /// Repeats a cell with the seeds of its repeats, at least `least` times, as far as an earlier run has not.
    fn cell(
        &mut self,
        name: &str,
        least: u32,
        seconds: f64,
        mut work: impl FnMut(u32) -> Result<Vec<Record>>,
    ) -> Result<()> {
        if self.store.is_finished(name) {
            return Ok(());
        }
        let start = Instant::now();
        let mut last = String::new();
        let mut count = 0;
        for repeat in 0..self.settings.repeats() {
            let one = format!("{name} #{repeat}");
            if self.store.is_finished(&one) {
                continue;
            }
            if count >= least && start.elapsed().as_secs_f64() > seconds {
                break;
            }
            let records = work(repeat)?;
            last = records.last().map(measured).unwrap_or_default();
            records.into_iter().for_each(|record| self.store.add(record));
            self.store.finish(&one)?;
            count += 1;
        }
        self.store.finish(name)?;
        let took = start.elapsed().as_secs_f64();
        self.tell(&format!("{name}: {count} repeats in {took:.1} s{last}"));
        Ok(())
    }

    /// The seed of a repeat.
    fn seed(&self, repeat: u32) -> u64 {
        self.settings.seed.wrapping_mul(1000).wrapping_add(u64::from(repeat))
    }

    /// The task of a repeat, as MAP is measured.
    fn task(&self, rows: u64, dim: usize, repeat: u32) -> Task {
        let (seed, no_rotation) = (self.seed(repeat), self.settings.no_rotation);
        Task { rows, dim, seed, no_rotation, learned_rotation: !no_rotation, timed: false }
    }
}

/// What a record measured, for people.
fn measured(record: &Record) -> String {
    let mut text = String::new();
    if let Some(error) = record.relative_error {
        text += &format!(", error {error:.2e}");
    }
    if let Some(seconds) = record.seconds {
        text += &format!(", {seconds:.3} s each");
    }
    if let Some(map) = record.map {
        text += &format!(", MAP {map:.3}");
    }
    text
}
