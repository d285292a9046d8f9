//! The paper's figures, each described by what its cells are and what is on its axes.
//!
//! A panel is a data set, a sweep or a code length; a line is a method, or one m of FFD where the paper has one line for
//! FFD. Table 2 is drawn as ratios to FROSH's time, with the paper's own beside. A figure without records is not there.

use crate::paper;
use crate::plot::{Axis, Panel, Point, Series};
use crate::results::{Record, Results};
use crate::summary::{Cell, bits, cells, curves, data_sets, methods, same_point, size};
use crate::text::{count, sig, tick, with_m};

/// A figure of the paper.
pub(super) struct Figure {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) experiment: &'static str,
    pub(super) columns: usize,
    cells: fn(&Results) -> Vec<Cell<'_>>,
    /// The horizontal axis of all panels but sweeps.
    x: &'static str,
    y: &'static str,
    /// Which axes are logarithmic.
    log: (bool, bool),
    /// Whether each code length has a panel.
    by_bits: bool,
    pub(super) caption: &'static str,
}

/// In the paper's order.
pub(super) const FIGURES: [Figure; 6] = [
    Figure {
        id: "figure-2",
        title: "Figure 2. Relative error of FD and FFD",
        experiment: "sketch",
        columns: 3,
        cells: |results| cells(results, "sketch", |r| r.relative_error),
        x: "",
        y: "relative error",
        log: (true, true),
        by_bits: false,
        caption: "Error: |A′A − B′B|₂ / |A|²<sub>F</sub> of a sketch B of l rows of made-up data A (ten directions of \
            falling strength and noise, as in the paper). m is the number of rows that FFD compresses at a time. All \
            axes are logarithmic.",
    },
    Figure {
        id: "figure-3",
        title: "Figure 3. Time of FD and FFD",
        experiment: "sketch",
        columns: 3,
        cells: |results| cells(results, "sketch", |r| r.seconds),
        x: "",
        y: "time (s)",
        log: (true, true),
        by_bits: false,
        caption: "Processor seconds of sketching on one thread, for the sketches of Figure 2. All axes are logarithmic.",
    },
    Figure {
        id: "figure-4",
        title: "Figure 4. MAP after each of ten rounds",
        experiment: "rounds",
        columns: 3,
        cells: |results| cells(results, "rounds", |r| r.map),
        x: "round",
        y: "MAP",
        log: (false, false),
        by_bits: true,
        caption: "The data comes in ten parts; after each, the whole base is encoded again and searched. Panels of one \
            data set share their vertical axis.",
    },
    Figure {
        id: "figure-5",
        title: "Figure 5. MAP over code lengths",
        experiment: "bits",
        columns: 2,
        cells: |results| cells(results, "bits", |r| r.map),
        x: "bits of a code, r",
        y: "MAP",
        log: (true, false),
        by_bits: false,
        caption: "PCA, PCA-RR and PCA-ITQ are not in the paper: exact principal components with no rotation, a random \
            one, and a learned one.",
    },
    Figure {
        id: "figure-6",
        title: "Figure 6. Precision and recall",
        experiment: "precision-recall",
        columns: 2,
        cells: curves,
        x: "recall",
        y: "precision",
        log: (false, false),
        by_bits: true,
        caption: "Mean precision and mean recall over queries as the number of returned rows grows from one to all. \
            Rows at equal Hamming distance are in random order: each number returned has its expected precision and \
            recall. The markers tell curves apart; they are not single measurements.",
    },
    Figure {
        id: "table-2",
        title: "Table 2. Training time",
        experiment: "train-time",
        columns: 2,
        cells: times,
        x: "bits of a code, r",
        y: "time / FROSH’s time",
        log: (true, true),
        by_bits: false,
        caption: "Filled: measured here, as a multiple of FROSH’s time for the same code length, without a learned \
            rotation. Hollow: the same ratio in the paper’s Table 2. In the tables, whole training includes the sample \
            of rows and the learned rotation that MAP was measured with; its ratios are to FROSH’s whole training. \
            Repeats are in brackets. The paper’s seconds are those of its whole sets on its machine.",
    },
];

/// Training times over FROSH's.
fn times<'a>(results: &'a Results) -> Vec<Cell<'a>> {
    let all = cells(results, "train-time", |r| r.seconds.filter(|s| *s > 0.0));
    let frosh: Vec<Cell> = all.iter().filter(|c| c.of.method == "FROSH").cloned().collect();
    let ratio = |c: Cell<'a>| {
        let by = frosh.iter().find(|o| same_point(o.of, c.of))?.mean;
        Some(Cell { mean: c.mean / by, low: c.low / by, high: c.high / by, ..c })
    };
    all.into_iter().filter_map(ratio).collect()
}

/// The same ratio in the paper's table.
fn in_the_paper(r: &Record) -> Option<f64> {
    let seconds = |method| paper::seconds(paper::set(&r.data)?, method, r.bits?);
    (r.experiment == "train-time").then_some(seconds(&r.method)? / seconds("FROSH")?)
}

impl Figure {
    pub(super) fn panels(&self, results: &Results) -> Vec<Panel> {
        let all = (self.cells)(results);
        let mut panels = Vec::new();
        for data in data_sets(all.iter().map(|c| c.of)) {
            let here: Vec<&Cell> = all.iter().filter(|c| c.of.data == data).collect();
            let lengths = match self.by_bits {
                true => bits(here.iter().map(|c| c.of)).into_iter().map(Some).collect(),
                false => vec![None],
            };
            for sweep in [None, Some("l"), Some("n"), Some("d")] {
                for length in &lengths {
                    let chosen = here.iter().copied().filter(|c| {
                        c.of.sweep.as_deref() == sweep && (length.is_none() || c.of.bits == *length)
                    });
                    let chosen: Vec<&Cell> = chosen.collect();
                    if !chosen.is_empty() {
                        panels.push(self.panel(data, sweep, *length, &chosen, &here));
                    }
                }
            }
        }
        panels
    }

    /// One panel; the vertical axis is that of all cells of the data set, so that its panels can be compared.
    fn panel(
        &self,
        data: &str,
        sweep: Option<&str>,
        length: Option<u32>,
        chosen: &[&Cell],
        of_data: &[&Cell],
    ) -> Panel {
        let x_label = match sweep {
            Some("l") => "rows of the sketch, l",
            Some("n") => "rows of data, n",
            Some(_) => "dimensions, d",
            None => self.x,
        };
        let values = of_data
            .iter()
            .flat_map(|c| [c.mean, c.low, c.high, in_the_paper(c.of).unwrap_or(f64::NAN)]);
        let (x, y) = match self.experiment {
            "precision-recall" => (Axis::unit(x_label), Axis::unit(self.y)),
            _ => (
                Axis::at(x_label, self.log.0, chosen.iter().map(|c| c.x)),
                Axis::over(self.y, self.log.1, values),
            ),
        };
        let title = [
            (data != "synthetic").then(|| paper::label(data)),
            sweep.map(|s| format!("over {s}")),
            length.map(|b| format!("{b} bits")),
        ];
        let fixed = ["l", "n", "d"].iter().filter(|name| match sweep {
            Some(sweep) => **name != sweep,
            None => **name != "l",
        });
        let fixed = fixed.filter_map(|name| {
            let largest = chosen.iter().filter_map(|c| size(c.of, name)).reduce(f64::max)?;
            Some(format!("{name} = {}", count(largest as u64)))
        });
        Panel {
            title: title.into_iter().flatten().collect::<Vec<_>>().join(", "),
            fixed: fixed.collect::<Vec<_>>().join(", "),
            x,
            y,
            series: self.series(chosen, x_label),
        }
    }

    fn series(&self, chosen: &[&Cell], x_label: &str) -> Vec<Series> {
        let mut all = Vec::new();
        for method in methods(chosen.iter().map(|c| c.of)) {
            let of: Vec<_> = chosen.iter().filter(|c| c.of.method == method).collect();
            let mut taus: Vec<_> = of.iter().map(|c| c.of.tau).collect();
            taus.sort_unstable();
            taus.dedup();
            for tau in taus {
                let label = with_m(method, tau);
                // A curve has a marker at each fifth, shifted from method to method, so that overlapping ones all show.
                let (every, shift) = match self.experiment {
                    "precision-recall" => (20, 3 + 2 * all.len() % 18),
                    _ => (1, 0),
                };
                let point = |(i, c): (usize, &&&Cell)| Point {
                    x: c.x,
                    y: c.mean,
                    low: c.low,
                    high: c.high,
                    paper: in_the_paper(c.of),
                    note: match i % every == shift {
                        true => format!("{label}, {x_label} {}: {}", tick(c.x), value(c)),
                        false => String::new(),
                    },
                };
                let line: Vec<_> = of.iter().filter(|c| c.of.tau == tau).collect();
                let points = line.into_iter().enumerate().map(point).collect();
                all.push(Series { label, method: method.into(), tau, points });
            }
        }
        all
    }
}

/// A cell's value with its range over repeats.
fn value(c: &Cell) -> String {
    match c.repeats {
        1 => format!("{} (one repeat)", sig(c.mean)),
        n => format!("{} ({} to {} in {n} repeats)", sig(c.mean), sig(c.low), sig(c.high)),
    }
}
