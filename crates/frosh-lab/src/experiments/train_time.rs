//! Table 2: training time of all methods.
//!
//! **Section 5.2**: seconds of training, one thread for everybody; making or reading data is left out for all alike. A
//! batch is made, then each learner takes it on its own clock. DFROSH's time is that of its slowest worker and of the
//! merge. What a learner does once for several methods or code lengths is counted for each.
//!
//! **Where we differ.** The paper's Algorithm 1 has no rotation, so its times have none. Here `train-time` rotates the
//! directions of OSH, FROSH and DFROSH at random, which costs next to nothing. Their MAP is measured with a rotation that
//! is learned (ITQ) on a sample of rows; `whole-training` times exactly that: sketch, sample and rotation. Batch PCA is
//! left out where d x d numbers are out of reach (FLICKR-25600).
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

/// Bytes of data that are held in memory.
const MOST_BYTES: u64 = 1 << 30;
/// The experiments on training time: the name, and whether the rotation is learned, for the methods that have one.
const TIMES: [(&str, bool, &[Method]); 2] = [
    ("train-time", false, &Method::ALL),
    ("whole-training", true, &[Method::Osh, Method::Frosh, Method::Dfrosh]),
];

/// A learner and its clock.
struct Timed {
    experiment: &'static str,
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
    }
    Ok(())
}

fn one_set(lab: &mut Lab<'_>, data: &str, source: &dyn Source) -> Result<()> {
    let (n, d) = (source.rows(), source.dim());
    let bits = lab.settings.bits(Experiment::TrainTime);
    let mut spent = std::collections::HashMap::<String, f64>::new();
    for repeat in 0..lab.settings.repeats() {
        let mut active: Vec<Timed> = Vec::new();
        for (experiment, learned_rotation, methods) in TIMES {
            if learned_rotation && lab.settings.no_rotation {
                continue;
            }
            let task = Task { learned_rotation, timed: true, ..lab.task(n, d, repeat) };
            for learner in methods::learners(&task, methods, &bits)? {
                let name = cell_name(experiment, data, learner.as_ref());
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
                active.push(Timed { experiment, learner, name, seconds: 0.0 });
            }
        }
        let passes = active.iter().map(|one| one.learner.passes()).max().unwrap_or(0);
        for pass in 0..passes {
            show(source, active.iter_mut().filter(|one| pass < one.learner.passes()).collect())?;
        }
        for Timed { experiment, mut learner, name, seconds } in active {
            let (sketch_rows, block_rows) = learner.sizes();
            let passes = learner.pass_seconds(seconds);
            let (mut line, mut took) = (String::new(), seconds);
            for (method, bits) in learner.gives() {
                let (fit, fitted) = timed(|| learner.fit(method, bits));
                fitted?;
                took += fit;
                line += &format!("  {} {bits}: {:.3} s", method.name(), passes + fit);
                lab.store.add(Record {
                    experiment: experiment.into(),
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
            lab.tell(&format!("{experiment} {data} #{repeat}{line}"));
        }
    }
    Ok(())
}

fn cell_name(experiment: &str, data: &str, learner: &dyn Learner) -> String {
    let gives = learner.gives();
    let gives: Vec<String> = gives.iter().map(|(m, b)| format!("{} {b}", m.name())).collect();
    format!("{experiment} {data} {}", gives.join(", "))
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
