//! The paper's figures, each described by what its cells are and what is on its axes.
//!
//! A panel is a data set, a sweep or a code length; a line is a method, or one m of FFD where the paper has one line for
//! FFD. Table 2 is drawn as ratios to FROSH's time, with the paper's own beside. A figure without records is not there.

use crate::paper;
use crate::plot::{Axis, Panel, Point, Series};
use crate::results::{Record, Results};
use crate::summary::{Cell, cells, curves, data_sets, methods, same_point, size};
use crate::text::{count, sig, tick, with_m};
use std::collections::BTreeMap;

/// A figure of the paper.
pub(super) struct Figure {
    pub(super) id: &'static str,
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
}

/// In the paper's order; then what is not in the paper.
#[rustfmt::skip] // A table.
pub(super) const FIGURES: [Figure; 7] = [
    Figure { id: "figure-2", experiment: "sketch", cells: |r| cells(r, "sketch", |r| r.relative_error),
        x: "", y: "relative error", log: (true, true), by_bits: false, columns: 3 },
    Figure { id: "figure-3", experiment: "sketch", cells: |r| cells(r, "sketch", |r| r.seconds),
        x: "", y: "time (s)", log: (true, true), by_bits: false, columns: 3 },
    Figure { id: "figure-4", experiment: "rounds", cells: |r| cells(r, "rounds", |r| r.map),
        x: "round", y: "MAP", log: (false, false), by_bits: true, columns: 3 },
    Figure { id: "figure-5", experiment: "bits", cells: |r| cells(r, "bits", |r| r.map),
        x: "bits of a code, r", y: "MAP", log: (true, false), by_bits: false, columns: 2 },
    Figure { id: "figure-6", experiment: "precision-recall", cells: curves,
        x: "recall", y: "precision", log: (false, false), by_bits: true, columns: 2 },
    Figure { id: "table-2", experiment: "train-time", cells: times,
        x: "bits of a code, r", y: "time / FROSH’s time", log: (true, true), by_bits: false, columns: 2 },
    Figure { id: "streams", experiment: "streams", cells: streams,
        x: "times that a row was encoded", y: "MAP", log: (false, false), by_bits: true, columns: 2 },
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

/// MAP over the number of times that a row was encoded.
fn streams(results: &Results) -> Vec<Cell<'_>> {
    let encoded = cells(results, "streams", |r| r.encoded);
    let mut all = cells(results, "streams", |r| r.map);
    for cell in &mut all {
        let own = encoded.iter().find(|e| e.of.chosen() == cell.of.chosen());
        cell.x = own.map_or(1.0, |e| e.mean);
    }
    all
}

/// The same ratio in the paper's table.
fn in_the_paper(r: &Record) -> Option<f64> {
    let seconds = |method| paper::seconds(paper::set(&r.data)?, method, r.bits?);
    let compared = r.experiment == "train-time" && r.method != "FROSH";
    compared.then_some(seconds(&r.method)? / seconds("FROSH")?)
}

impl Figure {
    /// "Figure 2", "Table 2", "Streams".
    pub(super) fn name(&self) -> String {
        self.id
            .replace("figure-", "Figure ")
            .replace("table-", "Table ")
            .replace("streams", "Streams")
    }

    pub(super) fn panels(&self, results: &Results) -> Vec<Panel> {
        let all = (self.cells)(results);
        let sets = data_sets(all.iter().map(|c| c.of));
        let mut groups: BTreeMap<_, Vec<&Cell>> = BTreeMap::new();
        for cell in &all {
            let set = sets.iter().position(|s| *s == cell.of.data);
            let sweep = cell.of.sweep.as_deref().and_then(|s| "lnd".find(s));
            let bits = cell.of.bits.filter(|_| self.by_bits);
            groups.entry((set, sweep, bits)).or_default().push(cell);
        }
        groups.into_values().map(|cells| self.panel(&cells, &all)).collect()
    }

    fn panel(&self, cells: &[&Cell], all: &[Cell]) -> Panel {
        let Record { data, sweep, bits, .. } = cells[0].of;
        let x_label = match sweep.as_deref() {
            Some("l") => "rows of the sketch, l",
            Some("n") => "rows of data, n",
            Some(_) => "dimensions, d",
            None => self.x,
        };
        // The vertical axis is that of all cells of the data set, so that its panels can be compared.
        let values = all.iter().filter(|c| c.of.data == *data);
        let values =
            values.flat_map(|c| [Some(c.mean), Some(c.low), Some(c.high), in_the_paper(c.of)]);
        let (x, y) = match self.experiment {
            "precision-recall" => (Axis::unit(x_label), Axis::unit(self.y)),
            "streams" => (
                Axis::over(x_label, false, cells.iter().map(|c| c.x)),
                Axis::over(self.y, false, values.flatten()),
            ),
            _ => (
                Axis::at(x_label, self.log.0, cells.iter().map(|c| c.x)),
                Axis::over(self.y, self.log.1, values.flatten()),
            ),
        };
        let title = [
            (data != "synthetic").then(|| paper::label(data)),
            sweep.as_ref().map(|s| format!("over {s}")),
            bits.filter(|_| self.by_bits).map(|b| format!("{b} bits")),
        ];
        let fixed = |name: &str| {
            let varies = sweep.as_deref().map_or(name == "l", |sweep| name == sweep);
            let largest = cells.iter().filter_map(|c| size(c.of, name)).reduce(f64::max)?;
            (!varies).then(|| format!("{name} = {}", count(largest as u64)))
        };
        let join = |parts: &mut dyn Iterator<Item = String>| parts.collect::<Vec<_>>().join(", ");
        Panel {
            title: join(&mut title.into_iter().flatten()),
            fixed: join(&mut ["l", "n", "d"].into_iter().filter_map(fixed)),
            x,
            y,
            series: self.series(cells, x_label),
        }
    }

    fn series(&self, cells: &[&Cell], x_label: &str) -> Vec<Series> {
        let methods = methods(cells.iter().map(|c| c.of));
        let mut groups: BTreeMap<_, Vec<&Cell>> = BTreeMap::new();
        for cell in cells {
            let method = methods.iter().position(|m| *m == cell.of.method);
            groups.entry((method, cell.of.tau)).or_default().push(cell);
        }
        let series = |(place, cells): (usize, Vec<&Cell>)| {
            let Record { method, tau, .. } = cells[0].of;
            let label = with_m(method, *tau);
            // A curve has a marker at each fifth, shifted from method to method, so that overlapping ones all show.
            let (every, shift) = match self.experiment {
                "precision-recall" => (20, (3 + 2 * place) % 20),
                _ => (1, 0),
            };
            let point = |(i, c): (usize, &&Cell)| {
                let note = format!("{label}, {x_label} {}: {}", tick(c.x), value(c));
                let note = if i % every == shift { note } else { String::new() };
                let (x, y, low, high) = (c.x, c.mean, c.low, c.high);
                Point { x, y, low, high, paper: in_the_paper(c.of), note }
            };
            let points = cells.iter().enumerate().map(point).collect();
            Series { label, method: method.clone(), tau: *tau, points }
        };
        groups.into_values().enumerate().map(series).collect()
    }
}

/// A cell's value with its range over repeats.
fn value(c: &Cell) -> String {
    match c.repeats {
        1 => format!("{} (one repeat)", sig(c.mean)),
        n => format!("{} ({} to {} in {n} repeats)", sig(c.mean), sig(c.low), sig(c.high)),
    }
}
