//! Figures 5 and 6: MAP of all methods against the code length, and precision-recall curves at 128 bits.
//!
//! **Section 5.2.** MAP is the mean over queries of the average precision over the whole ranking, ties in expectation;
//! the paper approximates the same area by precisions evenly spaced along recall. Curves are pooled over queries: one
//! point for each Hamming radius.
//!
//! **Cost.** Codes that both figures want are made and measured once.

use super::Lab;
use crate::data::{Ground, Source};
use crate::error::Result;
use crate::methods::{self, Method};
use crate::results::Record;
use crate::settings::Experiment;

pub(super) fn run(lab: &mut Lab<'_>, ground: &Ground, (map, curve): (bool, bool)) -> Result<()> {
    let (n, d) = (ground.base.rows(), ground.base.dim());
    let long = lab.settings.bits(Experiment::PrecisionRecall);
    let mut lengths = if map { lab.settings.bits(Experiment::Bits) } else { Vec::new() };
    lengths.extend(if curve { long.clone() } else { Vec::new() });
    lengths.sort_unstable();
    lengths.dedup();
    let tasks: Vec<_> = (0..lab.settings.repeats()).map(|r| lab.task(n, d, r, false)).collect();
    // A cell for each learner: one code length, or all, or even several methods, as it serves them.
    for given in methods::learners(&tasks[0], &Method::ALL, &lengths)? {
        let given = given.gives();
        let (mut names, mut group): (Vec<Method>, Vec<usize>) = given.into_iter().unzip();
        names.dedup();
        group.sort_unstable();
        group.dedup();
        let what = match (map, curve && group.iter().any(|bits| long.contains(bits))) {
            (true, true) => "bits and precision-recall",
            (true, false) => "bits",
            _ => "precision-recall",
        };
        let whose: Vec<&str> = names.iter().map(|method| method.name()).collect();
        let long_name: Vec<String> = group.iter().map(ToString::to_string).collect();
        let (whose, length) = (whose.join(", "), long_name.join(", "));
        let name = format!("{what} {} {whose} {length} bits", ground.name);
        let limit = lab.settings.cell_seconds;
        lab.cell(&name, 1, limit, |repeat| {
            let mut records = Vec::new();
            for mut learner in methods::learners(&tasks[repeat as usize], &names, &group)? {
                let (sketch_rows, block_rows) = learner.sizes();
                methods::learn(learner.as_mut(), &ground.base)?;
                for (method, bits) in learner.gives() {
                    // Without any randomness, another repeat would measure the same.
                    if method == Method::Pca && repeat > 0 {
                        continue;
                    }
                    let encoder = learner.fit(method, bits)?;
                    let base = encoder.encode(ground.base.view()?)?;
                    let queries = encoder.encode(ground.queries.view()?)?;
                    let result = ground.measure(&queries, &base)?;
                    let record = Record {
                        data: ground.name.clone(),
                        method: method.name().into(),
                        rows: n,
                        dim: d as u64,
                        sketch_rows,
                        block_rows,
                        bits: Some(bits as u32),
                        repeat,
                        map: Some(result.map()),
                        ..Record::default()
                    };
                    if curve && long.contains(&bits) {
                        let points = result.curve().into_iter().map(|p| [p.recall, p.precision]);
                        records.push(Record {
                            experiment: "precision-recall".into(),
                            curve: Some(points.collect()),
                            ..record.clone()
                        });
                    }
                    if map {
                        records.push(Record { experiment: "bits".into(), ..record });
                    }
                }
            }
            Ok(records)
        })?;
    }
    Ok(())
}
