//! Table 2: training time of all methods.
//!
//! **Section 5.2**: seconds of training, one thread for everybody; making or reading data is left out for all alike. A
//! batch is made, then each learner takes it on its own clock. DFROSH's time is that of its slowest worker and of the
//! merge. What a learner does once for several methods or code lengths is counted for each.
//!
//! **Where we differ.** The paper's Algorithm 1 has no rotation, and its times none; here the directions of OSH, FROSH and
//! DFROSH are turned at random, which costs next to nothing. The rotation that frosh uses by default, ITQ on a sample,
//! takes a time that does not depend on the rows: it stands in records of its own, with `ITQ` as the method, to be
//! added to any of the three. Batch PCA is left out where d x d numbers are out of reach (FLICKR-25600).
//!
//! Sets below 1 GB are held in memory, larger ones are streamed. What takes more than half of a cell's time is measured
//! once.

use super::Lab;
use crate::clock::timed;
use crate::data::{Memory, Source};
use crate::error::Result;
use crate::methods::{self, Learner, Method, Task};
use crate::results::Record;
use crate::settings::{Experiment, Purpose};
use frosh::{Config, Pool, Rotation, Rows, Sketcher};

/// Bytes of data that are held in memory.
const MOST_BYTES: u64 = 1 << 30;
/// Rows that the sample for ITQ is taken from.
const ITQ_ROWS: u64 = 4096;

/// A learner and its clock.
struct Timed {
    learner: Box<dyn Learner>,
    /// Its cell's name.
    name: String,
    seconds: f64,
}

pub(super) fn run(lab: &mut Lab<'_>) -> Result<()> {
    for name in lab.settings.set_names(Purpose::Time)? {
        let set = lab.settings.open(&name, Purpose::Time)?;
        let most = if lab.settings.quick { 40_000 } else { u64::MAX };
        let bytes = set.base.rows().min(most) * set.base.dim() as u64 * 4;
        let memory = match bytes <= MOST_BYTES {
            true => Some(Memory::load(set.base.as_ref(), most)?),
            false => None,
        };
        let source: &dyn Source = memory.as_ref().map_or(set.base.as_ref(), |m| m);
        one_set(lab, &set.name, source)?;
        itq(lab, &set.name, source)?;
    }
    Ok(())
}

fn one_set(lab: &mut Lab<'_>, data: &str, source: &dyn Source) -> Result<()> {
    let (n, d) = (source.rows(), source.dim());
    let bits = lab.settings.bits(Experiment::TrainTime);
    let mut spent = std::collections::HashMap::<String, f64>::new();
    for repeat in 0..lab.settings.repeats() {
        let task = lab.task(n, d, repeat, true);
        let mut active: Vec<Timed> = Vec::new();
        for learner in methods::learners(&task, &Method::ALL, &bits)? {
            let name = cell_name(data, learner.as_ref());
            let one = format!("{name} #{repeat}");
            if lab.store.is_finished(&name) || lab.store.is_finished(&one) {
                continue;
            }
            let before = spent.get(&name).copied().unwrap_or(0.0);
            // One repeat is little for a time, unless it took more than half of what all of them may.
            let most = lab.settings.cell_seconds * if repeat == 1 { 0.5 } else { 1.0 };
            if repeat > 0 && before > most {
                lab.store.finish(&name)?;
                continue;
            }
            active.push(Timed { learner, name, seconds: 0.0 });
        }
        let passes = active.iter().map(|one| one.learner.passes()).max().unwrap_or(0);
        for pass in 0..passes {
            show(source, active.iter_mut().filter(|one| pass < one.learner.passes()).collect())?;
        }
        for Timed { mut learner, name, seconds } in active {
            let (sketch_rows, block_rows) = learner.sizes();
            let passes = learner.pass_seconds(seconds);
            let (mut line, mut took) = (String::new(), seconds);
            for (method, bits) in learner.gives() {
                let (fit, fitted) = timed(|| learner.fit(method, bits));
                fitted?;
                took += fit;
                line += &format!("  {} {bits}: {:.3} s", method.name(), passes + fit);
                lab.store.add(Record {
                    experiment: "train-time".into(),
                    data: data.into(),
                    method: method.name().into(),
                    rows: n,
                    dim: d as u64,
                    sketch_rows,
                    block_rows,
                    bits: Some(bits as u32),
                    repeat,
                    seconds: Some(passes + fit),
                    ..Record::default()
                });
            }
            *spent.entry(name.clone()).or_default() += took;
            lab.store.finish(&format!("{name} #{repeat}"))?;
            lab.tell(&format!("train-time {data} #{repeat}{line}"));
        }
    }
    Ok(())
}

fn cell_name(data: &str, learner: &dyn Learner) -> String {
    let gives = learner.gives();
    let gives: Vec<String> = gives.iter().map(|(m, b)| format!("{} {b}", m.name())).collect();
    format!("train-time {data} {}", gives.join(", "))
}

/// Shows all rows to some learners, each on its own clock.
fn show(source: &dyn Source, mut learners: Vec<&mut Timed>) -> Result<()> {
    source.each(&mut |rows| {
        for one in &mut learners {
            let (seconds, pushed) = timed(|| one.learner.push(rows));
            pushed?;
            one.seconds += seconds;
        }
        Ok(())
    })?;
    for one in learners {
        let (seconds, ended) = timed(|| one.learner.end_pass());
        ended?;
        one.seconds += seconds;
    }
    Ok(())
}

/// What ITQ adds to OSH, FROSH and DFROSH, where it is the default.
fn itq(lab: &mut Lab<'_>, data: &str, source: &dyn Source) -> Result<()> {
    let dim = source.dim();
    let bits = lab.settings.bits(Experiment::TrainTime);
    if lab.settings.no_rotation || bits.iter().all(|b| *b > dim) {
        return Ok(());
    }
    let Task { seed, .. } = lab.task(source.rows(), dim, 0, false);
    let most = bits.iter().filter(|b| **b <= dim).max().copied().unwrap_or(1);
    let mut sketch = None;
    for bits in bits.into_iter().filter(|b| *b <= dim) {
        let name = format!("train-time {data} ITQ {bits}");
        let limit = lab.settings.cell_seconds;
        let rows = source.rows();
        lab.cell(&name, 2, limit, |repeat| {
            if sketch.is_none() {
                let mut sketcher =
                    Sketcher::new(Config::new(dim).sketch_rows(2 * most).seed(seed))?;
                let some = Memory::load(source, ITQ_ROWS)?;
                sketcher.push(Rows::new(&some.values, dim)?)?;
                sketch = Some(sketcher.finish());
            }
            let Some(sketch) = &sketch else { return Ok(Vec::new()) };
            if sketch.default_rotation(bits) != Rotation::Refined {
                return Ok(Vec::new());
            }
            // The difference of two short times: the better of three of each.
            let best = |rotation| -> Result<f64> {
                let mut best = f64::INFINITY;
                for _ in 0..3 {
                    let (seconds, made) =
                        timed(|| Pool::ONE.install(|| sketch.hasher_with(bits, rotation)));
                    made?;
                    best = best.min(seconds);
                }
                Ok(best)
            };
            let (plain, turned) = (best(Rotation::Random)?, best(Rotation::Itq)?);
            Ok(vec![Record {
                experiment: "train-time".into(),
                data: data.into(),
                method: "ITQ".into(),
                rows,
                dim: dim as u64,
                bits: Some(bits as u32),
                repeat,
                seconds: Some((turned - plain).max(0.0)),
                ..Record::default()
            }])
        })?;
    }
    Ok(())
}
