//! Figure 4: MAP after each of ten rounds, for the online methods.
//!
//! **Section 5.2**: the stream is cut into ten parts; after each, base and queries are encoded by what was learned so
//! far, and scored against the whole base. `rows` of a record are those learned from up to its round.

use super::Lab;
use crate::data::{Ground, Source};
use crate::error::Result;
use crate::methods::{self, Method};
use crate::results::Record;
use crate::settings::Experiment;
use frosh::Rows;

const ROUNDS: usize = 10;

pub(super) fn run(lab: &mut Lab<'_>, ground: &Ground) -> Result<()> {
    let (n, d) = (ground.base.rows(), ground.base.dim());
    for bits in lab.settings.bits(Experiment::Rounds) {
        for method in [Method::Lsh, Method::Osh, Method::Frosh] {
            if !methods::possible(method, d, bits) {
                continue;
            }
            let tasks: Vec<_> = (0..lab.settings.repeats()).map(|r| lab.task(n, d, r)).collect();
            let name = format!("rounds {} {} {bits} bits", ground.name, method.name());
            let limit = lab.settings.cell_seconds;
            lab.cell(&name, 1, limit, |repeat| {
                let task = &tasks[repeat as usize];
                let mut sketcher = methods::sketcher(task, method, bits, 0)?;
                let (sketch_rows, block_rows) = methods::sizes(method, &sketcher);
                let mut records = Vec::new();
                for round in 0..ROUNDS {
                    sketcher.push(Rows::new(ground.base.part(round, ROUNDS), d)?)?;
                    let sketch = sketcher.sketch();
                    let rotation = match method {
                        Method::Lsh => frosh::Rotation::None,
                        _ => methods::rotation(task, &sketch, bits),
                    };
                    let hasher = sketch.hasher_with(bits, rotation)?;
                    let base = hasher.encode(ground.base.view()?)?;
                    let queries = hasher.encode(ground.queries.view()?)?;
                    records.push(Record {
                        experiment: "rounds".into(),
                        data: ground.name.clone(),
                        method: method.name().into(),
                        rows: sketcher.rows(),
                        dim: d as u64,
                        sketch_rows,
                        block_rows,
                        bits: Some(bits as u32),
                        round: Some(round as u32 + 1),
                        repeat,
                        map: Some(ground.measure(&queries, &base)?.map()),
                        ..Record::default()
                    });
                }
                Ok(records)
            })?;
        }
    }
    Ok(())
}
